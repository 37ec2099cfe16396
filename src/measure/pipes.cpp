#include "measure/pipes.h"

namespace flashbench {

namespace {

// Fused multiply-adds: twice the results per clock of "32-bit floating-point add, multiply,
// multiply-add" in the CUDA C++ Programming Guide's table of arithmetic instructions. Tensor cores:
// twice the dense FP16 and BF16 FMA per clock and SM of NVIDIA's whitepapers of the A100 (1024) and
// the H100 (2048), whose FP8 rate is twice that. On 8.6 and 8.9 the rate with fp32 accumulation
// differs between professional and other GPUs.
struct Pipes {
  int compute_capability;
  double fma, tensor, tensor_8_bit = 0;  // 0: not known, or none
};
constexpr Pipes kPipes[] = {{80, 128, 2048}, {86, 256, 0}, {89, 256, 0}, {90, 256, 4096, 8192}};

double flops_of(const Pipes& pipes, Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return pipes.fma;
    case Dtype::fp16:
    case Dtype::bf16:
      return pipes.tensor;
    case Dtype::e4m3:
      return pipes.tensor_8_bit;
  }
  return 0;
}

}  // namespace

std::optional<double> pipe_flops_per_clock(Dtype dtype, int compute_capability) {
  for (const Pipes& pipes : kPipes) {
    if (pipes.compute_capability != compute_capability) continue;
    const double flops = flops_of(pipes, dtype);
    if (flops > 0) return flops;
  }
  return std::nullopt;
}

}  // namespace flashbench
