// What the machine itself can do, measured the same way as the providers: the upper lines of the
// roofline.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/inputs.h"
#include "measure/sampler.h"

namespace flashbench {

// Rows, columns and depth of the GEMM below: on a CPU one for each thread, large enough that
// packing is hidden (docs/measuring.md). Which size is the fastest on a GPU depends on the GPU and
// the dtype: it is found out. Another program's GEMM has the one size.
inline constexpr int64_t kHostGemmSize = 1024;
inline constexpr std::array<int64_t, 3> kCudaGemmSizes{2048, 4096, 8192};
inline constexpr int64_t kProgramHostGemmSize = 1536, kProgramCudaGemmSize = 4096;

// A large GEMM on this device: the ceiling that providers' FLOP/s are compared with. It runs in
// every case's rounds, so that the share of the ceiling is a ratio of neighbours in time.
class GemmCeiling {
 public:
  virtual ~GemmCeiling() = default;
  virtual void run() = 0;
  virtual double flops() const = 0;
  virtual std::string description() const = 0;  // e.g. "sgemm 1536x1536x1536, OpenBLAS 0.3.21, ..."
};

// Of operands in `dtype`; on a CPU in fp32, whatever the dtype: so the kernels compute there.
std::unique_ptr<GemmCeiling> make_gemm_ceiling(Device& device, Dtype dtype);

// One measured ceiling.
struct Ceiling {
  std::string name;  // "gemm_fp32", "gemm_fp16", "gemm_bf16", "copy", "read", "ffma" or "exp2"
  std::string unit;  // "FLOP/s", "byte/s" or "exp2/s"
  std::string description;
  double work = 0;  // FLOPs, bytes or values of one run; rate = work / median seconds
  Measurement measurement;

  double rate() const;
};

// GEMM, copy (bytes read plus bytes written) and read bandwidth, and fp32 fused multiply-adds; on a
// GPU also exponentials.
std::vector<Ceiling> measure_ceilings(Device& device, const MeasureOptions& options,
                                      const std::function<bool()>& interrupted);

// What is wrong with ceilings, by one another: a sentence each. An fp32 GEMM that uses the
// processor reaches most of what its multiply-adds alone do, and no more.
std::vector<std::string> doubts(const std::vector<Ceiling>&);

// What the host and the GPU each implement: the work whose rate is a ceiling. `run` owns what it
// works on.
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
