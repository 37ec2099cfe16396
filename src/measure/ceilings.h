// The limits of the machine (the upper lines of the roofline), measured in the same way as the
// providers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "inputs/inputs.h"
#include "measure/sampler.h"

namespace flashbench {

// Rows, columns and depth of the GEMM below. On a CPU each thread computes its own, large enough
// that packing is hidden (docs/measuring.md). On a GPU the fastest size depends on the GPU and the
// dtype, so that several are tried. Another program's GEMM has one fixed size.
inline constexpr int64_t kHostGemmSize = 1024;
inline constexpr std::array<int64_t, 3> kCudaGemmSizes{2048, 4096, 8192};
inline constexpr int64_t kProgramHostGemmSize = 1536, kProgramCudaGemmSize = 4096;

// A large GEMM on this device: the ceiling that providers' FLOP/s are compared with. It runs in
// every case's rounds, so that the share of the ceiling is a ratio of times that were measured one
// after the other.
class GemmCeiling {
 public:
  virtual ~GemmCeiling() = default;
  virtual void run() = 0;
  virtual double flops() const = 0;
  // E.g. "sgemm 1024x1024x1024 on each of 2 threads, OpenBLAS 0.3.21".
  virtual std::string description() const = 0;
};

// The GEMM has operands in `dtype`; on a CPU always fp32, in which the CPU kernels compute.
std::unique_ptr<GemmCeiling> make_gemm_ceiling(Device& device, Dtype dtype);

// One measured ceiling.
struct Ceiling {
  std::string name;  // "gemm_fp32", "gemm_fp16", "gemm_bf16", "copy", "read", "ffma", "exp2" or
                     // "cvt_e4m3"
  std::string unit;  // "FLOP/s", "byte/s", "exp2/s" or "value/s"
  std::string description;
  double work = 0;  // FLOPs, bytes or values of one run; rate = work / median seconds
  Measurement measurement;
  std::string source{};  // the file of a merged result that it is from; empty: the result's own

  double rate() const;
  // Work per clock and multiprocessor, at the median SM clock of the samples; empty where the
  // device does not report its clock.
  std::optional<double> rate_per_clock(int multiprocessors) const;
};

// GEMM, copy (bytes read plus bytes written) and read bandwidth, and fp32 fused multiply-adds; on a
// GPU also exponentials and, where it has them, roundings to e4m3.
std::vector<Ceiling> measure_ceilings(Device& device, const MeasureOptions& options,
                                      const std::function<bool()>& interrupted);

// Inconsistencies between ceilings, a sentence each. An fp32 GEMM that uses the processor fully
// reaches most of the rate of multiply-adds alone, and no more.
std::vector<std::string> doubts(const std::vector<Ceiling>&);

// The work whose rate is a ceiling, implemented for the host and for the GPU. `run` owns its data.
struct CeilingWork {
  std::string name, unit, description;
  double work = 0;
  std::function<void()> run;
};
std::unique_ptr<GemmCeiling> make_host_gemm(Device&);
std::vector<CeilingWork> host_ceilings(Device&);
std::unique_ptr<GemmCeiling> make_cuda_gemm(Device&, Dtype);
std::vector<CeilingWork> cuda_ceilings(Device&);

}  // namespace flashbench
