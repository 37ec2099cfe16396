// The last kernel of the backward pass: scales the fp32 accumulators, restores their order and
// rounds them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/backward/accumulator.cuh"
#include "kernels/backward/backward.h"
#include "kernels/common/blocks.h"
#include "kernels/common/half_types.h"
#include "kernels/ptx/cvt.h"

namespace flashbench::kernels::backward {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 64;  // per thread block

// Transposes 4 x 4 words among four lanes: x[j] of lane l goes to x[l] of lane j.
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

// An output tensor and its accumulators.
struct Converted {
  const float* sums;  // accumulators of the first slice
  Strided to;
  int heads, length, padded;  // `heads` of one batch
  int slices;
  float factor;
};

// Converts a span of kRows rows of one head. A warp converts 16 rows x 32 columns at a time.
template <typename Element, int kHeadDim>
__device__ __forceinline__ void convert_span(const Converted& c, int span, int64_t slice_floats,
                                             int head_dim) {
  constexpr int kUnits = kRows / 16 * (kHeadDim / 32);
  const int spans = c.padded / kRows;
  const int head = span / spans;
  const int first = span % spans * kRows;
  Element* to = c.to.head<Element>(head / c.heads, head % c.heads);
  const float* sums = c.sums + (static_cast<int64_t>(head) * c.padded + first) * kHeadDim;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int unit = threadIdx.x / 32; unit < kUnits; unit += kThreads / 32) {
    float v[4][4];
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
      load_accumulator(sums + (unit * 4 + tile) * 128, lane, v[tile]);
    for (int slice = 1; slice < c.slices; ++slice) {
#pragma unroll
      for (int tile = 0; tile < 4; ++tile) {
        float more[4];
        load_accumulator(sums + slice * slice_floats + (unit * 4 + tile) * 128, lane, more);
#pragma unroll
        for (int i = 0; i < 4; ++i) v[tile][i] += more[i];
      }
    }
    const int chunk = unit % (kHeadDim / 32) * 4 + lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t x[4];
#pragma unroll
      for (int tile = 0; tile < 4; ++tile) {
        x[tile] =
            ptx::cvt_rn_x2<Element>(v[tile][half * 2] * c.factor, v[tile][half * 2 + 1] * c.factor);
      }
      transpose_among_four(x);
      const int row = first + unit / (kHeadDim / 32) * 16 + half * 8 + lane / 4;
      if (row < c.length && chunk * 8 < head_dim) {
        *reinterpret_cast<uint4*>(to + row * c.to.row_stride + chunk * 8) =
            uint4{x[0], x[1], x[2], x[3]};
      }
    }
  }
}

// Converts dQ and then, where thread blocks share keys, dK and dV.
template <typename Element, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    backward_convert(const __grid_constant__ Arguments args) {
  const int q_spans = args.batch * args.q_heads * (args.padded_q / kRows);
  int span = blockIdx.x;
  if (span < q_spans) {
    convert_span<Element, kHeadDim>(
        {args.dq_sums, args.dq, args.q_heads, args.q_len, args.padded_q, 1, args.scale}, span, 0,
        args.head_dim);
    return;
  }
  span -= q_spans;
  const int kv_spans = args.batch * args.kv_heads * (args.padded_kv / kRows);
  const int64_t slice_floats = static_cast<int64_t>(kv_spans) * kRows * kHeadDim;
  const bool is_dk = span < kv_spans;
  convert_span<Element, kHeadDim>(
      {is_dk ? args.dk_sums : args.dv_sums, is_dk ? args.dk : args.dv, args.kv_heads, args.kv_len,
       args.padded_kv, args.slices, is_dk ? args.scale : 1.0f},
      is_dk ? span : span - kv_spans, slice_floats, args.head_dim);
}

}  // namespace

RowKernel convert(const Problem& p) {
  return with_compiled_head_dim(p.head_dim, [&]<int kHeadDim>() -> RowKernel {
    return {{"sm80_backward_convert",
             for_half(p.dtype, backward_convert<__half, kHeadDim>,
                      backward_convert<__nv_bfloat16, kHeadDim>),
             kThreads},
            kRows};
  });
}

}  // namespace flashbench::kernels::backward
