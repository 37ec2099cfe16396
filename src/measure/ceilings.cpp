#include "measure/ceilings.h"

#include <fmt/format.h>

#include <algorithm>

#include "measure/stats.h"

namespace flashbench {

namespace {

constexpr double kLeastGemmOfFma = 0.6, kMostGemmOfFma = 1.05;

double rate_of(const std::vector<Ceiling>& ceilings, const char* name) {
  const auto found = std::find_if(ceilings.begin(), ceilings.end(),
                                  [&](const Ceiling& ceiling) { return ceiling.name == name; });
  return found == ceilings.end() ? 0 : found->rate();
}

}  // namespace

std::unique_ptr<GemmCeiling> make_gemm_ceiling(Device& device, Dtype dtype) {
  return device.info().kind == DeviceKind::cpu ? make_host_gemm(device)
                                               : make_cuda_gemm(device, dtype);
}

double Ceiling::rate() const {
  return measurement.seconds.empty() ? 0 : work / median(measurement.seconds);
}

std::optional<double> Ceiling::rate_per_clock(int multiprocessors) const {
  const auto sm_mhz = median_state(measurement, &DeviceState::sm_mhz);
  if (!sm_mhz || !(*sm_mhz > 0)) return std::nullopt;
  return rate() / (multiprocessors * *sm_mhz * 1e6);
}

std::vector<Ceiling> measure_ceilings(Device& device, const MeasureOptions& options,
                                      const std::function<bool()>& interrupted) {
  const std::vector<CeilingWork> works =
      device.info().kind == DeviceKind::cpu ? host_ceilings(device) : cuda_ceilings(device);
  std::vector<Contender> contenders;
  for (const CeilingWork& work : works) contenders.push_back(Contender::of(work.run));
  const std::vector<Timing> timings =
      measure_interleaved(device, contenders, options, 1, interrupted);

  std::vector<Ceiling> ceilings;
  for (size_t i = 0; i < works.size(); ++i) {
    if (timings[i].error) std::rethrow_exception(timings[i].error);
    ceilings.push_back({works[i].name, works[i].unit, works[i].description, works[i].work,
                        timings[i].measurement});
  }
  return ceilings;
}

std::vector<std::string> doubts(const std::vector<Ceiling>& ceilings) {
  for (const Ceiling& ceiling : ceilings) {
    const std::optional<Load>& load = ceiling.measurement.load;
    if (!load || !is_heavy(*load)) continue;
    return {told(*load) + " while the ceilings were measured, which may be too low"};
  }
  const double gemm = rate_of(ceilings, "gemm_fp32"), fma = rate_of(ceilings, "ffma");
  if (!(gemm > 0 && fma > 0)) return {};
  const double share = gemm / fma;
  if (share < kLeastGemmOfFma) {
    return {fmt::format(
        "gemm_fp32 is {:.0f}% of what this processor's multiply-adds reach, too little for a "
        "ceiling: the BLAS library, or OPENBLAS_CORETYPE in the environment, may have chosen "
        "kernels for another processor (libraries: openblas_core)",
        share * 100)};
  }
  if (share > kMostGemmOfFma) {
    return {
        fmt::format("gemm_fp32 is {:.0f}% of what this processor's multiply-adds reach: one of "
                    "the two ceilings is wrong",
                    share * 100)};
  }
  return {};
}

}  // namespace flashbench
