// The last kernel of the backward pass: scales the fp32 accumulators, restores their order and
// rounds them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/backward/accumulator.cuh"
#include "kernels/backward/backward.h"
#include "kernels/backward/requests.cuh"
#include "kernels/common/blocks.h"
#include "kernels/common/half_types.h"
#include "kernels/common/requests.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/movmatrix.h"
#include "kernels/ptx/target.h"

namespace flashbench::kernels::backward {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = kKeySumBlock;  // per thread block

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

// 16 rows x 32 columns: of each 8 columns, a lane l holds columns l%4 * 2 + {0, 1} of rows l/4 and
// l/4 + 8. Transposed, each 8 x 8 of them are: it holds column l/4 of rows l%4 * 2 + {0, 1} and of
// the rows 8 further.
using Values = float[4][4];

template <int kHeadDim>
__device__ __forceinline__ void load_transposed(const float* sums, int unit, Values& v) {
  constexpr int kUnitsOfRow = kHeadDim / 32;
  const int row = unit / kUnitsOfRow * 2, column = unit % kUnitsOfRow * 2;  // in tiles of 8 x 16
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int lower = i / 2, right = i % 2;
    float tile[4];
    load_accumulator(sums + transposed_tile(row + lower, column + right) * 128, threadIdx.x % 32,
                     tile);
#pragma unroll
    for (int x = 0; x < 4; ++x) v[2 * right + x / 2][2 * lower + x % 2] = tile[x];
  }
}

// An output tensor and its accumulators.
struct Converted {
  const float* sums;  // accumulators of the first slice
  Strided to;
  int heads, length, padded;  // `heads` of one batch
  int slices;
  float factor;
  RowStarts starts;  // if by request
  bool is_dq;
};

// The rows of a head in an output tensor that a span of its rows in the workspace becomes.
struct Rows {
  int batch, first, end;
  int offset;  // of row 0 in the tensor
  // Rows with sums come first. In the tensor, so many of those without, which are zeros, lie before
  // them, and the others behind.
  int summed, before;

  // The number of this row in the tensor.
  __device__ int place(int row) const {
    if (row < summed) return offset + row + before;
    return offset + (row < summed + before ? row - summed : row);
  }
};

template <bool kByRequest>
__device__ __forceinline__ Rows rows_at(const Arguments& args, const Converted& c, int head,
                                        int row) {
  if constexpr (kByRequest) {
    const Requests& all = args.requests;
    const int request = request_of_workspace_row(c.starts, all.count, row);
    const Request r(all, request, args.q_heads);
    const int first = row - first_workspace_row(c.starts, request);
    if (c.is_dq) return {r.batch, first, r.q_len, r.first_q, r.live, r.first_live};
    return {r.batch, first, r.kv_len, r.first_k, r.kv_len, 0};
  } else {
    return {head / c.heads, row, c.length, 0, c.length, 0};
  }
}

// Stores values in fp32. A lane's first row is `row`.
__device__ __forceinline__ void store_fp32(const Arguments& args, const Converted& c,
                                           const Rows& rows, float* to, int row, int first_column,
                                           const Values& v) {
  const int column = first_column + threadIdx.x % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = row + half * 8;
    if (at >= rows.end) continue;
    const bool summed = at < rows.summed;
    float* const out = to + rows.place(at) * c.to.row_stride + column;
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
      if (column + tile * 8 >= args.head_dim) continue;
      out[tile * 8] = summed ? v[tile][half * 2] * c.factor : 0;
      out[tile * 8 + 1] = summed ? v[tile][half * 2 + 1] * c.factor : 0;
    }
  }
}

// Converts a span of kRows rows of one head. A warp converts 16 rows x 32 columns at a time.
template <typename Element, int kHeadDim, bool kByRequest, bool kTransposed = false>
__device__ __forceinline__ void convert_span(const Arguments& args, const Converted& c, int span,
                                             int64_t slice_floats) {
  constexpr int kUnits = kRows / 16 * (kHeadDim / 32);
  const int spans = c.padded / kRows;
  const int head = span / spans;
  const int first = span % spans * kRows;
  const Rows rows = rows_at<kByRequest>(args, c, head, first);
  if (rows.first >= rows.end) return;
  Element* to = c.to.head<Element>(rows.batch, head % c.heads);
  const float* sums = c.sums + (static_cast<int64_t>(head) * c.padded + first) * kHeadDim;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int unit = threadIdx.x / 32; unit < kUnits; unit += kThreads / 32) {
    Values v;
    if constexpr (kTransposed) {
      load_transposed<kHeadDim>(sums, unit, v);
    } else {
#pragma unroll
      for (int tile = 0; tile < 4; ++tile) {
        load_accumulator(sums + (unit * 4 + tile) * 128, lane, v[tile]);
      }
    }
    for (int slice = 1; slice < c.slices; ++slice) {
#pragma unroll
      for (int tile = 0; tile < 4; ++tile) {
        float more[4];
        load_accumulator(sums + slice * slice_floats + (unit * 4 + tile) * 128, lane, more);
#pragma unroll
        for (int i = 0; i < 4; ++i) v[tile][i] += more[i];
      }
    }
    if constexpr (std::is_same_v<Element, float>) {
      if constexpr (kTransposed) {
        for (float(&tile)[4] : v) {
          transpose_accumulators(tile[0], tile[1]);
          transpose_accumulators(tile[2], tile[3]);
        }
      }
      store_fp32(args, c, rows, to, rows.first + unit / (kHeadDim / 32) * 16 + lane / 4,
                 unit % (kHeadDim / 32) * 32, v);
    } else {
      const int chunk = unit % (kHeadDim / 32) * 4 + lane % 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t x[4];
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
          x[tile] = ptx::cvt_rn_x2<Element>(v[tile][half * 2] * c.factor,
                                            v[tile][half * 2 + 1] * c.factor);
          if constexpr (kTransposed) x[tile] = ptx::movmatrix_trans(x[tile]);
        }
        transpose_among_four(x);
        const int row = rows.first + unit / (kHeadDim / 32) * 16 + half * 8 + lane / 4;
        if (row < rows.end && chunk * 8 < args.head_dim) {
          *reinterpret_cast<uint4*>(to + rows.place(row) * c.to.row_stride + chunk * 8) =
              row < rows.summed ? uint4{x[0], x[1], x[2], x[3]} : uint4{};
        }
      }
    }
  }
}

// Converts dQ and then, where thread blocks share keys, dK and dV.
template <typename QueryElement, typename KeyElement, int kHeadDim, bool kByRequest,
          bool kDqTransposed = false>
__global__ void __launch_bounds__(kThreads)
    backward_convert(const __grid_constant__ Arguments args) {
  if constexpr (ptx::has_sm_90()) ptx::griddepcontrol_wait();
  const int q_spans = args.batch * args.q_heads * (args.padded_q / kRows);
  int span = blockIdx.x;
  if (span < q_spans) {
    convert_span<QueryElement, kHeadDim, kByRequest, kDqTransposed>(
        args,
        {args.dq_sums, args.dq, args.q_heads, args.q_len, args.padded_q, 1, args.scale,
         args.requests.queries, true},
        span, 0);
    return;
  }
  span -= q_spans;
  const int kv_spans = args.batch * args.kv_heads * (args.padded_kv / kRows);
  const int64_t slice_floats = static_cast<int64_t>(kv_spans) * kRows * kHeadDim;
  const bool is_dk = span < kv_spans;
  convert_span<KeyElement, kHeadDim, kByRequest>(
      args,
      {is_dk ? args.dk_sums : args.dv_sums, is_dk ? args.dk : args.dv, args.kv_heads, args.kv_len,
       args.padded_kv, args.slices, is_dk ? args.scale : 1.0f, args.requests.keys, false},
      is_dk ? span : span - kv_spans, slice_floats);
}

// Converts dK and dV of some blocks of keys of all heads.
template <typename Element, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    backward_convert_keys(const __grid_constant__ KeyConversion conversion) {
  const Arguments& args = conversion.args;
  const int of_each = args.batch * args.kv_heads * conversion.count;
  const bool is_dk = static_cast<int>(blockIdx.x) < of_each;
  const int index = static_cast<int>(blockIdx.x) - (is_dk ? 0 : of_each);
  const int span = index / conversion.count * (args.padded_kv / kRows) + conversion.first +
                   index % conversion.count;
  convert_span<Element, kHeadDim, false>(args,
                                         {is_dk ? args.dk_sums : args.dv_sums,
                                          is_dk ? args.dk : args.dv,
                                          args.kv_heads,
                                          args.kv_len,
                                          args.padded_kv,
                                          args.slices,
                                          is_dk ? args.scale : 1.0f,
                                          {},
                                          false},
                                         span, 0);
}

}  // namespace

CudaKernel<KeyConversion> convert_keys(const Problem& p) {
  return with_compiled_head_dim(p.head_dim, [&]<int kHeadDim>() -> CudaKernel<KeyConversion> {
    return {"sm80_backward_convert_keys",
            for_half(p.dtype, backward_convert_keys<__half, kHeadDim>,
                     backward_convert_keys<__nv_bfloat16, kHeadDim>),
            kThreads};
  });
}

namespace {

template <int kHeadDim, bool kDqTransposed>
auto convert_kernel(const Launch& at) {
  const Dtype dtype = at.problem.dtype;
  if (is_by_request(at.problem)) {
    return for_half(dtype, backward_convert<__half, __half, kHeadDim, true, kDqTransposed>,
                    backward_convert<__nv_bfloat16, __nv_bfloat16, kHeadDim, true, kDqTransposed>);
  }
  if (at.fp32_outputs.of_queries) {
    return backward_convert<float, float, kHeadDim, false, kDqTransposed>;
  }
  if (at.fp32_outputs.of_keys) {
    return for_half(dtype, backward_convert<__half, float, kHeadDim, false, kDqTransposed>,
                    backward_convert<__nv_bfloat16, float, kHeadDim, false, kDqTransposed>);
  }
  return for_half(dtype, backward_convert<__half, __half, kHeadDim, false, kDqTransposed>,
                  backward_convert<__nv_bfloat16, __nv_bfloat16, kHeadDim, false, kDqTransposed>);
}

}  // namespace

RowKernel convert(const Launch& at, DqTiles dq_tiles) {
  return with_compiled_head_dim(at.problem.head_dim, [&]<int kHeadDim>() -> RowKernel {
    const auto kernel = [&] {
      if constexpr (kHeadDim == 128) {
        if (dq_tiles == DqTiles::transposed) return convert_kernel<kHeadDim, true>(at);
      }
      return convert_kernel<kHeadDim, false>(at);
    }();
    return {{"sm80_backward_convert", kernel, kThreads}, kRows};
  });
}

}  // namespace flashbench::kernels::backward
