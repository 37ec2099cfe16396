#include "plan/estimate.h"

#include <algorithm>
#include <string_view>
#include <thread>

namespace flashbench {

namespace {

// Shares of the GEMM's speed, from runs on CPUs and an H200; only the order of magnitude matters
// here.
constexpr double kFusedShare = 0.8;      // tiled and libraries, over the unmasked pairs
constexpr double kUnfusedShare = 0.4;    // naive and blocked, which compute the masked pairs too
constexpr double kEmulatedShare = 0.01;  // step by step, as tensor cores round
constexpr double kReferenceShare = 0.1;  // fp64, with more work per pair than attention itself
constexpr double kGpuReferenceShare = 0.01;  // of 16-bit tensor cores
constexpr double kGpuReferenceBudget = 100;  // times the host's, before rows are sampled
constexpr double kLaunchSeconds = 1e-5;
constexpr double kProviderSeconds = 5e-3;  // of a provider on the smallest case, without timing
constexpr double kRunsToVerify = 1;
constexpr double kGemmFlopsPerCpuThread = 1e11;  // AVX2 and AVX-512 reach 5e10 to 1.7e11 in fp32
constexpr double kGemmFlopsGpu = 2e14;           // an A100's 16-bit tensor cores, sustained
constexpr double kColdSeconds = 1e-2;            // to empty the caches before a run
constexpr double kFillSeconds = 2e-8;            // to draw one random element
constexpr double kSamplesOverMinimum = 2.0;      // until the median's interval is narrow
constexpr double kGemmSecondsCpu = 2e-2;         // of one run of the GEMM in the rounds of a case
constexpr double kGemmSecondsGpu = 5e-4;
constexpr double kCeilingsSeconds = 3;  // of a sweep, before its cases

std::string_view family_of(std::string_view provider) {
  return provider.substr(0, provider.find(':'));
}

bool is_unfused(std::string_view provider) {
  return family_of(provider) == "naive" || family_of(provider) == "blocked";
}

double run_seconds(const Problem& problem, std::string_view provider, double gemm_flops) {
  if (!is_unfused(provider)) {
    const double share = family_of(provider) == "emulated" ? kEmulatedShare : kFusedShare;
    return problem.flops() / (gemm_flops * share) + kLaunchSeconds;
  }
  Problem unmasked = problem;
  unmasked.mask = Mask::none;
  unmasked.window_left = unmasked.window_right = std::nullopt;
  return unmasked.flops() / (gemm_flops * kUnfusedShare) + kLaunchSeconds;
}

double samples_of(const MeasureOptions& options) {
  return std::min<double>(options.min_samples * kSamplesOverMinimum, options.max_samples);
}

// Before a warm sample the same work runs without being timed.
double sample_seconds(double run, const MeasureOptions& options) {
  return options.cache == CacheState::cold ? run + kColdSeconds : 2 * run;
}

double timing_seconds(double run, const MeasureOptions& options) {
  const double warmup = std::max(options.warmup_runs * run, options.warmup_seconds);
  const double sample = sample_seconds(run, options);
  return warmup +
         std::clamp(samples_of(options) * sample, sample, std::max(sample, options.max_seconds));
}

// The reference, in full or sampled down to its budget; a backward pass also needs the forward
// pass's exact outputs, which are never sampled.
double reference_seconds(const Problem& problem, const VerifyOptions& options, DeviceKind kind,
                         double gemm_flops) {
  const bool gpu = kind == DeviceKind::cuda;
  const double budget = options.fp64_flops * (gpu ? kGpuReferenceBudget : 1);
  Problem forward = problem;
  forward.pass = Pass::forward;
  const double inputs = problem.pass == Pass::backward ? forward.flops() : 0;
  const double work = std::min(problem.flops(), budget) + inputs;
  return work / (gemm_flops * (gpu ? kGpuReferenceShare : kReferenceShare));
}

}  // namespace

CaseEstimate estimate(const Case& c) {
  return {.flops = c.problem.flops(), .tensor_bytes = c.problem.tensor_bytes()};
}

double assumed_gemm_flops(DeviceKind kind, int threads) {
  if (kind == DeviceKind::cuda) return kGemmFlopsGpu;
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return kGemmFlopsPerCpuThread * (threads > 0 ? threads : all);
}

double estimate_verification(const Case& c, const std::vector<std::string>& providers,
                             const VerifyOptions& verify, DeviceKind kind, double gemm_flops) {
  const Problem& p = c.problem;
  const auto elements =
      static_cast<double>(p.query_elements() + p.key_elements() + p.value_elements());
  double seconds = elements * kFillSeconds + reference_seconds(p, verify, kind, gemm_flops);
  for (const std::string& provider : providers) {
    seconds += kProviderSeconds + kRunsToVerify * run_seconds(p, provider, gemm_flops);
  }
  return seconds;
}

double estimate_seconds(const Case& c, const std::vector<std::string>& providers,
                        const MeasureOptions& measure, const VerifyOptions& verify, DeviceKind kind,
                        double gemm_flops) {
  const double gemm = kind == DeviceKind::cuda ? kGemmSecondsGpu : kGemmSecondsCpu;
  double seconds = estimate_verification(c, providers, verify, kind, gemm_flops) +
                   samples_of(measure) * sample_seconds(gemm, measure);
  for (const std::string& provider : providers) {
    seconds += timing_seconds(run_seconds(c.problem, provider, gemm_flops), measure);
  }
  return seconds;
}

double estimate_sweep(const SweepConfig& config, const std::vector<std::string>& providers,
                      bool timed, DeviceKind kind, double gemm_flops) {
  double seconds = 0;
  for (const Case& item : config.cases) {
    seconds +=
        timed ? estimate_seconds(item, providers, config.measure, config.verify, kind, gemm_flops)
              : estimate_verification(item, providers, config.verify, kind, gemm_flops);
  }
  return timed ? kCeilingsSeconds + seconds * config.measure.repetitions : seconds;
}

}  // namespace flashbench
