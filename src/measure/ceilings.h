// What the machine itself can do, measured the same way as the providers: the upper lines of the
// roofline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/inputs.h"
#include "measure/sampler.h"

namespace flashbench {

// A large GEMM on this device in fp32: the ceiling that providers' FLOP/s are compared with. It
// runs in every case's rounds, so that the share of the ceiling is a ratio of neighbours in time.
class GemmCeiling {
 public:
  explicit GemmCeiling(Device& device);
  void run();
  double flops() const;
  std::string description() const;  // e.g. "sgemm 1536x1536x1536, OpenBLAS 0.3.21, 2 threads"

 private:
  Device& device_;
  Buffer a_, b_, c_;
};

// One measured ceiling.
struct Ceiling {
  std::string name;  // "gemm_fp32", "copy" or "read"
  std::string unit;  // "FLOP/s" or "byte/s"
  std::string description;
  double work = 0;  // FLOPs or bytes of one run; rate = work / median seconds
  Measurement measurement;

  double rate() const;
};

// GEMM, copy (bytes read plus bytes written) and read bandwidth.
std::vector<Ceiling> measure_ceilings(Device& device, const MeasureOptions& options,
                                      const std::function<bool()>& interrupted);

}  // namespace flashbench
