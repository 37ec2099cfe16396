// The first kernel of the backward pass: computes D = rowsum(dO o O) and the logsumexp in base 2,
// and sets the counters and accumulators of the main kernel to zero.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <numbers>
#include <type_traits>

#include "kernels/backward/backward.h"
#include "kernels/backward/requests.cuh"
#include "kernels/common/blocks.h"
#include "kernels/common/half_types.h"
#include "kernels/common/requests.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/target.h"

namespace flashbench::kernels::backward {
namespace {

constexpr int kThreads = 256;

template <typename Element>
__device__ __forceinline__ float2 unpack(uint32_t pair) {
  if constexpr (std::is_same_v<Element, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  } else {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
  }
}

// Lanes per row; each lane holds 8 elements.
__host__ __device__ constexpr int lanes_per_row(int head_dim) {
  return head_dim <= 32 ? 4 : head_dim <= 64 ? 8 : head_dim <= 128 ? 16 : 32;
}

// Rows per thread block; each thread works on two.
__host__ __device__ constexpr int rows_of_block(int head_dim) {
  return 2 * kThreads / lanes_per_row(head_dim);
}

// The rows of a head with which a thread block works: from `first` on, as far as `end`.
struct Rows {
  int batch, first, end;
  int64_t offset;     // of row 0 in a head of the tensors
  int64_t logsumexp;  // index of row 0
};

// Those at this row of the workspace.
template <bool kByRequest>
__device__ __forceinline__ Rows rows_at(const Arguments& args, int head, int row) {
  if constexpr (kByRequest) {
    const Requests& all = args.requests;
    const int request = request_of_workspace_row(all.queries, all.count, row);
    const Request r(all, request, args.q_heads);
    return {r.batch, row - first_workspace_row(all.queries, request), r.live,
            r.first_q + r.first_live, r.logsumexp + head * r.logsumexp_stride + r.first_live};
  } else {
    return {head / args.q_heads, row, args.q_len, 0, static_cast<int64_t>(head) * args.q_len};
  }
}

// Processes a span of kRows rows of one head.
template <typename Element, int kHeadDim, bool kByRequest>
__device__ __forceinline__ void process(const Arguments& args, int span) {
  constexpr int kLanes = lanes_per_row(kHeadDim);
  constexpr int kRows = rows_of_block(kHeadDim), kPasses = kRows * kLanes / kThreads;
  const int spans = args.padded_q / kRows;
  const int head = span / spans;
  const int first_row = span % spans * kRows;
  const int h = head % args.q_heads;
  const int64_t first_padded = static_cast<int64_t>(head) * args.padded_q + first_row;
  const Rows rows = rows_at<kByRequest>(args, head, first_row);
  // The main kernel's blocks of queries end before the first multiple of kRowPadding behind the
  // last live row. Nobody reads the rows from there on.
  if (kByRequest && rows.first / kRowPadding * kRowPadding >= rows.end) return;

  if (threadIdx.x < kRows && (first_row + threadIdx.x) % kTurnRows == 0) {
    args.turns[(first_padded + threadIdx.x) / kTurnRows] = 0;
  }

  const Element* o = args.o.head<Element>(rows.batch, h) + rows.offset * args.o.row_stride;
  const Element* d_o = args.d_o.head<Element>(rows.batch, h) + rows.offset * args.d_o.row_stride;
  const int column = threadIdx.x % kLanes * 8;
  uint4 o_values[kPasses], d_o_values[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int row = rows.first + (i * kThreads + threadIdx.x) / kLanes;
    o_values[i] = d_o_values[i] = uint4{};
    if (row < rows.end && column < args.head_dim) {
      o_values[i] = *reinterpret_cast<const uint4*>(o + row * args.o.row_stride + column);
      d_o_values[i] = *reinterpret_cast<const uint4*>(d_o + row * args.d_o.row_stride + column);
    }
  }
  float4* sums = reinterpret_cast<float4*>(args.dq_sums + first_padded * kHeadDim);
#pragma unroll 4
  for (int i = threadIdx.x; i < kRows * kHeadDim / 4; i += kThreads) sums[i] = float4{};

#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int row = (i * kThreads + threadIdx.x) / kLanes;
    const uint32_t x[4] = {o_values[i].x, o_values[i].y, o_values[i].z, o_values[i].w};
    const uint32_t y[4] = {d_o_values[i].x, d_o_values[i].y, d_o_values[i].z, d_o_values[i].w};
    float d = 0;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 u = unpack<Element>(x[pair]), w = unpack<Element>(y[pair]);
      d = fmaf(u.x, w.x, fmaf(u.y, w.y, d));
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      d += __shfl_xor_sync(0xffffffffu, d, distance);
    }
    if (threadIdx.x % kLanes == 0) {
      float base_2 = INFINITY;  // P = 0 for rows out of range and rows that see no key
      if (rows.first + row < rows.end) {
        const float l = args.logsumexp[rows.logsumexp + rows.first + row];
        if (l != -INFINITY) base_2 = l * std::numbers::log2e_v<float>;
      }
      args.logsumexp_base_2[first_padded + row] = base_2;
      args.d[first_padded + row] = d;
    }
  }
}

template <typename Element, int kHeadDim, bool kByRequest>
__global__ void __launch_bounds__(kThreads, kDotBlocks)
    backward_dot_do_o(const __grid_constant__ Arguments args) {
  if constexpr (ptx::has_sm_90()) ptx::griddepcontrol_launch_dependents();
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  if (first == 0 && threadIdx.x == 0) *args.tickets = 0;
  for (int64_t i = int64_t{first} * kThreads + threadIdx.x; i < args.zeros / 4;
       i += int64_t{step} * kThreads) {
    reinterpret_cast<float4*>(args.dk_sums)[i] = reinterpret_cast<float4*>(args.dv_sums)[i] =
        float4{};
  }
  if constexpr (!kByRequest) {  // else the kernel that lists the work does so
    const int counters = (args.work_items - args.whole_items) * kMostPieceWarps;
    for (int i = first * kThreads + static_cast<int>(threadIdx.x); i < counters;
         i += step * kThreads) {
      args.piece_arrivals[i] = 0;
    }
  }
  const int spans = args.batch * args.q_heads * (args.padded_q / rows_of_block(kHeadDim));
  for (int span = first; span < spans; span += step) {
    process<Element, kHeadDim, kByRequest>(args, span);
  }
  // The main kernel waits for this one alone, which therefore must not end before the one that
  // lists the work.
  if constexpr (kByRequest && ptx::has_sm_90()) ptx::griddepcontrol_wait();
}

}  // namespace

RowKernel dot_do_o(const Problem& p) {
  return with_compiled_head_dim(p.head_dim, [&]<int kHeadDim>() -> RowKernel {
    const auto kernel = is_by_request(p)
                            ? for_half(p.dtype, backward_dot_do_o<__half, kHeadDim, true>,
                                       backward_dot_do_o<__nv_bfloat16, kHeadDim, true>)
                            : for_half(p.dtype, backward_dot_do_o<__half, kHeadDim, false>,
                                       backward_dot_do_o<__nv_bfloat16, kHeadDim, false>);
    return {{"sm80_backward_dot_do_o", kernel, kThreads}, rows_of_block(kHeadDim)};
  });
}

}  // namespace flashbench::kernels::backward
