// Fused attention in fp32 arithmetic for any GPU, dtype and alignment: a thread block has a block
// of queries, whose O stays in registers while blocks of K and V pass by in shared memory; the
// online softmax (Milakov and Gimelshein 2018, arXiv 1805.02867) rescales it where a maximum rises.
//
// A warp has all keys of its rows, so that what goes from S to P to the second product stays in it.
// V is fetched while S is computed, and the next K while O is, where registers allow: one buffer of
// each is enough.
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/common/alignment.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/ptx/ex2.h"
#include "kernels/simt/tile.cuh"

namespace flashbench::kernels {

namespace {

using namespace simt;

// Rows per thread and keys per block are as many as registers hold beside O; warps as many as
// shared memory of 227 KB (two thread blocks for an SM up to 128 columns) or, small, 99 KB holds Q
// for.
template <int kDim_, int kRows_, int kKeys_, int kWarps_, int kPass_ = 16>
struct Shape {
  static constexpr int kDim = kDim_;      // head_dim, padded
  static constexpr int kRows = kRows_;    // of a thread
  static constexpr int kKeys = kKeys_;    // of a block
  static constexpr int kWarps = kWarps_;  // of a thread block
  static constexpr int kPass = kPass_;    // columns of P
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kWarpQueries = kRows * kLaneRows;
  static constexpr int kQueries = kWarps * kWarpQueries;  // of a thread block
};

template <typename S>
struct Shared {
  float q[S::kQueries][padded(S::kDim)];
  float k[S::kKeys][padded(S::kDim)];
  float v[S::kKeys][S::kDim];
  float pass[S::kWarps][S::kWarpQueries][pass_stride(S::kPass)];
};

template <typename T>
struct Arguments {
  Tensor<const T> q, k, v;
  Tensor<T> o;
  float* logsumexp;
  int q_heads, heads_per_kv_head, heads;  // `heads` of all batches
  int q_len, kv_len, head_dim;
  int visible_from;  // query i sees clamp(i + visible_from, 0, kv_len) keys
  float scale;       // to base 2
  bool q_aligned, k_aligned, v_aligned, o_aligned;

  __device__ int visible_keys(int query) const { return min(max(query + visible_from, 0), kv_len); }
};

template <typename S>
struct RowState {
  float maximum[S::kRows], sum[S::kRows];  // the sum of this lane's columns only
};

// S of one block, in base 2, becomes P; O is rescaled. Lane column j is key first_key + x + 8 j.
template <typename S, typename T, int kColumns, int kDimColumns>
__device__ void softmax_step(const Arguments<T>& arg, const Lane& lane, int first_query,
                             int first_key, bool masked, float (&s)[S::kRows][kColumns],
                             RowState<S>& state, float (&o)[S::kRows][kDimColumns]) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const int visible =
        masked ? arg.visible_keys(first_query + lane.y + i * kLaneRows) - first_key - lane.x
               : S::kKeys;
    float maximum = -kInfinity;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      s[i][j] = j * kLaneColumns < visible ? s[i][j] * arg.scale : -kInfinity;
      maximum = fmaxf(maximum, s[i][j]);
    }
    maximum = fmaxf(state.maximum[i], row_max(maximum));
    const float subtracted = maximum == -kInfinity ? 0.0f : maximum;
    const float rescale = ptx::ex2_approx_ftz(state.maximum[i] - subtracted);
    state.maximum[i] = maximum;
    state.sum[i] *= rescale;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      s[i][j] = ptx::ex2_approx_ftz(s[i][j] - subtracted);
      state.sum[i] += s[i][j];
      if (masked && j * kLaneColumns >= visible) s[i][j] = kMasked;
    }
#pragma unroll
    for (int c = 0; c < kDimColumns; ++c) o[i][c] *= rescale;
  }
}

template <typename S, typename T, int kDimColumns>
__device__ void store_outputs(const Arguments<T>& arg, const Lane& lane, int batch, int h,
                              int first_query, const RowState<S>& state,
                              const float (&o)[S::kRows][kDimColumns]) {
  T* const o_head = arg.o.head(batch, h);
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const int query = first_query + lane.y + i * kLaneRows;
    const float sum = row_sum(state.sum[i]);
    if (query >= arg.q_len) continue;
    const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
    store_row(o[i], factor, lane, arg.head_dim, arg.o_aligned, o_head + query * arg.o.row_stride);
    if (lane.x == 0) {
      const float logsumexp = (state.maximum[i] + log2f(sum)) * kLn2;
      arg.logsumexp[(int64_t{batch} * arg.q_heads + h) * arg.q_len + query] =
          sum == 0.0f ? -kInfinity : logsumexp;
    }
  }
}

template <typename S, typename T>
__global__ __launch_bounds__(S::kThreads, 2) void forward_kernel(Arguments<T> arg) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Shared<S>& shared = *reinterpret_cast<Shared<S>*>(shared_bytes);
  const Lane lane;
  // The last queries see the most keys: they come first.
  const int tiles = (arg.q_len + S::kQueries - 1) / S::kQueries;
  const int tile = tiles - 1 - static_cast<int>(blockIdx.x / arg.heads);
  const int head = static_cast<int>(blockIdx.x) % arg.heads;
  const int batch = head / arg.q_heads, h = head % arg.q_heads, kv_h = h / arg.heads_per_kv_head;
  const int first_query = tile * S::kQueries;
  const int warp_query = first_query + lane.warp * S::kWarpQueries;
  const int keys = arg.visible_keys(min(first_query + S::kQueries, arg.q_len) - 1);
  const Rows<T> k_rows{arg.k.head(batch, kv_h), arg.k.row_stride, arg.kv_len, arg.head_dim,
                       arg.k_aligned};
  const Rows<T> v_rows{arg.v.head(batch, kv_h), arg.v.row_stride, arg.kv_len, arg.head_dim,
                       arg.v_aligned};
  {
    TileLoad<T, S::kThreads, S::kQueries, S::kDim, padded(S::kDim)> q_load;
    q_load.fetch({arg.q.head(batch, h), arg.q.row_stride, arg.q_len, arg.head_dim, arg.q_aligned},
                 first_query, shared.q[0]);
    q_load.commit(shared.q[0]);
  }
  TileLoad<T, S::kThreads, S::kKeys, S::kDim, padded(S::kDim)> k_load;
  TileLoad<T, S::kThreads, S::kKeys, S::kDim, S::kDim> v_load;
  k_load.fetch(k_rows, 0, shared.k[0]);
  k_load.commit(shared.k[0]);
  __syncthreads();

  RowState<S> state;
  float o[S::kRows][S::kDim / kLaneColumns];
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    state.maximum[i] = -kInfinity;
    state.sum[i] = 0;
#pragma unroll
    for (int c = 0; c < S::kDim / kLaneColumns; ++c) o[i][c] = 0;
  }
  for (int first_key = 0; first_key < keys; first_key += S::kKeys) {
    if (v_load.kEarly) v_load.fetch(v_rows, first_key, shared.v[0]);
    float s[S::kRows][S::kKeys / kLaneColumns];
    multiply_transposed<S::kDim, padded(S::kDim), padded(S::kDim)>(
        shared.q[lane.warp * S::kWarpQueries], shared.k[0], lane, s);
    if (!v_load.kEarly) v_load.fetch(v_rows, first_key, shared.v[0]);
    v_load.commit(shared.v[0]);
    __syncthreads();
    const int next_key = first_key + S::kKeys;
    const bool another = next_key < keys;
    if (another && k_load.kEarly) k_load.fetch(k_rows, next_key, shared.k[0]);
    const bool masked = next_key > arg.visible_keys(warp_query);
    softmax_step(arg, lane, warp_query, first_key, masked, s, state, o);
    accumulate_product<S::kPass, S::kDim>(s, masked, shared.pass[lane.warp][0], shared.v[0], lane,
                                          o);
    if (another && !k_load.kEarly) k_load.fetch(k_rows, next_key, shared.k[0]);
    if (another) k_load.commit(shared.k[0]);
    __syncthreads();
  }
  store_outputs(arg, lane, batch, h, warp_query, state, o);
}

// Calls body(Shape) for the largest that fits; false if none does.
template <typename Body>
bool with_shape(const Problem& p, const DeviceInfo& device, const Body& body) {
  const auto fits = [&]<typename S>(S shape) {
    if (p.head_dim > S::kDim || sizeof(Shared<S>) > static_cast<size_t>(device.shared_memory_bytes))
      return false;
    body(shape);
    return true;
  };
  return fits(Shape<32, 8, 64, 4, 32>{}) || fits(Shape<64, 8, 64, 4, 32>{}) ||
         fits(Shape<128, 8, 32, 4>{}) || (p.head_dim <= 128 && fits(Shape<128, 8, 32, 2>{})) ||
         fits(Shape<256, 4, 32, 4>{}) || fits(Shape<256, 4, 16, 2>{});
}

template <typename S, typename T>
CudaKernel<Arguments<T>> kernel_of() {
  return {"simt_forward", forward_kernel<S, T>, S::kThreads, sizeof(Shared<S>)};
}

template <typename S, typename T>
void launch_shape(const Problem& p, const Inputs& in, const Outputs& out, Stream stream) {
  Arguments<T> arg;
  arg.q = tensor<const T>(in.q);
  arg.k = tensor<const T>(in.k);
  arg.v = tensor<const T>(in.v);
  arg.o = tensor<T>(out.o);
  arg.logsumexp = out.logsumexp;
  arg.q_heads = static_cast<int>(p.q_heads);
  arg.heads_per_kv_head = static_cast<int>(p.heads_per_kv_head());
  arg.heads = static_cast<int>(p.batch * p.q_heads);
  arg.q_len = static_cast<int>(p.q_len);
  arg.kv_len = static_cast<int>(p.kv_len);
  arg.head_dim = static_cast<int>(p.head_dim);
  arg.visible_from = static_cast<int>(visible_from(p));
  arg.scale = static_cast<float>(p.softmax_scale()) * kLog2e;
  arg.q_aligned = rows_aligned(in.q);
  arg.k_aligned = rows_aligned(in.k);
  arg.v_aligned = rows_aligned(in.v);
  arg.o_aligned = rows_aligned(out.o);
  const int64_t tiles = (p.q_len + S::kQueries - 1) / S::kQueries;
  launch_kernel(kernel_of<S, T>(), tiles * p.batch * p.q_heads, arg, stream);
}

std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
  if (device.compute_capability < 80) return "it needs compute capability 8.0";
  if (!with_shape(p, device, [](auto) {})) return "its tiles do not fit this GPU's shared memory";
  return std::nullopt;
}

std::string variant(const Launch& at) {
  std::string text;
  with_shape(at.problem, at.device, [&](auto shape) {
    using S = decltype(shape);
    text = "simt_forward " + std::to_string(S::kQueries) + "x" + std::to_string(S::kKeys);
  });
  return text;
}

size_t workspace_bytes(const Launch&) {
  return 0;
}

// Q read and O and L written once; K and V read once for every block of queries, as far as it sees.
int64_t requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  int64_t keys = 0;
  with_shape(p, at.device, [&](auto shape) {
    constexpr int64_t kQueries = decltype(shape)::kQueries;
    for (int64_t first = 0; first < p.q_len; first += kQueries) {
      keys += p.visible_keys(std::min(p.q_len, first + kQueries) - 1);
    }
  });
  return element_size(p.dtype) * 2 *
             (p.query_elements() + p.batch * p.q_heads * keys * p.head_dim) +
         static_cast<int64_t>(sizeof(float)) * p.query_rows();
}

std::vector<KernelFacts> facts(const Launch& at) {
  std::vector<KernelFacts> found;
  with_shape(at.problem, at.device, [&](auto shape) {
    with_type(at.problem.dtype, [&](auto element) {
      found = {kernel_facts(kernel_of<decltype(shape), decltype(element)>())};
    });
  });
  return found;
}

void launch(const Launch& at, const Inputs& in, const Outputs& out, void*, Stream stream) {
  with_shape(at.problem, at.device, [&](auto shape) {
    with_type(at.problem.dtype, [&](auto element) {
      launch_shape<decltype(shape), decltype(element)>(at.problem, in, out, stream);
    });
  });
}

}  // namespace

extern const AttentionKernel kSimtForward{.name = "simt_forward",
                                          .family = "simt",
                                          .device = DeviceKind::cuda,
                                          .pass = Pass::forward,
                                          .why_unsupported = why_unsupported,
                                          .variant = variant,
                                          .workspace_bytes = workspace_bytes,
                                          .requested_bytes = requested_bytes,
                                          .facts = facts,
                                          .launch = launch};

}  // namespace flashbench::kernels
