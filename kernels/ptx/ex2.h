// ex2.approx: 2 to the power of x, within 2 ulp. Subnormal inputs and results are flushed to zero.
#pragma once

namespace flashbench::ptx {

__device__ __forceinline__ float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace flashbench::ptx
