// The last launch of the backward pass: dQ = scale * its fp32 sums, in order and rounded.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/blocks.h"
#include "kernels/ptx/cvt.h"
#include "kernels/sm80/backward.h"
#include "kernels/sm80/dq_accumulator.cuh"

namespace flashbench::kernels::sm80 {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 64;  // of a thread block

// Lane l of each four has x[j] = what belongs to lane j; afterwards x[j] = what lane j had for l.
__device__ __forceinline__ void transpose_among_four(uint32_t (&x)[4]) {
  const auto exchange = [](uint32_t& low, uint32_t& high, int distance) {
    const bool upper = threadIdx.x & distance;
    const uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? low : high, distance);
    (upper ? low : high) = received;
  };
  exchange(x[0], x[1], 1);
  exchange(x[2], x[3], 1);
  exchange(x[0], x[2], 2);
  exchange(x[1], x[3], 2);
}

// A warp takes 16 rows x 32 columns at a time.
template <typename Element, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    backward_convert_dq(const __grid_constant__ BackwardArguments args) {
  constexpr int kUnits = kRows / 16 * (kHeadDim / 32);
  const int spans = args.padded_q / kRows;
  const int head = blockIdx.x / spans;
  const int first = blockIdx.x % spans * kRows;
  Element* dq = args.dq.head<Element>(head / args.q_heads, head % args.q_heads);
  const float* sums =
      args.dq_sums + (static_cast<int64_t>(head) * args.padded_q + first) * kHeadDim;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int unit = threadIdx.x / 32; unit < kUnits; unit += kThreads / 32) {
    float v[4][4];
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
      load_accumulator(sums + (unit * 4 + tile) * 128, lane, v[tile]);
    const int chunk = unit % (kHeadDim / 32) * 4 + lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t x[4];
#pragma unroll
      for (int tile = 0; tile < 4; ++tile) {
        x[tile] = ptx::cvt_rn_x2<Element>(v[tile][half * 2] * args.scale,
                                          v[tile][half * 2 + 1] * args.scale);
      }
      transpose_among_four(x);
      const int row = first + unit / (kHeadDim / 32) * 16 + half * 8 + lane / 4;
      if (row < args.q_len && chunk * 8 < args.head_dim) {
        *reinterpret_cast<uint4*>(dq + row * args.dq.row_stride + chunk * 8) =
            uint4{x[0], x[1], x[2], x[3]};
      }
    }
  }
}

}  // namespace

RowKernel convert_dq(const Problem& p) {
  return with_compiled_head_dim(p.head_dim, [&]<int kHeadDim>() -> RowKernel {
    return {{"sm80_backward_convert_dq",
             p.dtype == Dtype::fp16 ? backward_convert_dq<__half, kHeadDim>
                                    : backward_convert_dq<__nv_bfloat16, kHeadDim>,
             kThreads},
            kRows};
  });
}

}  // namespace flashbench::kernels::sm80
