#include "measure/ceilings.h"

#include "measure/stats.h"

namespace flashbench {

std::unique_ptr<GemmCeiling> make_gemm_ceiling(Device& device, Dtype dtype) {
  return device.info().kind == DeviceKind::cpu ? make_host_gemm(device)
                                               : make_cuda_gemm(device, dtype);
}

double Ceiling::rate() const {
  return measurement.seconds.empty() ? 0 : work / median(measurement.seconds);
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

}  // namespace flashbench
