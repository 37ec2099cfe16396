// Attention backward in fp32 arithmetic for any GPU, dtype and alignment; deterministic. One kernel
// keeps dQ of a block of queries in registers and loops over keys; another keeps dK and dV of a
// block of keys and loops over queries. Both compute S and dP: this takes seven products instead of
// five, but no sum depends on the order of thread blocks.
//
// Both kernels share their code: a thread block owns "rows" and loops over "columns"; X1 Y1^T is S
// or its transpose, and X2 Y2^T is dP or its transpose.
//
//           rows     X1  X2  columns  Y1  Y2  sums
//   dQ      queries  Q   dO  keys     K   V   dQ = dS K
//   dK, dV  keys     K   V   queries  Q   dO  dK = dS^T Q, dV = P^T dO
#include <algorithm>
#include <string>

#include "kernels/attention.h"
#include "kernels/common/alignment.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/naive/softmax_cuda.h"
#include "kernels/ptx/ex2.h"
#include "kernels/simt/tile.cuh"

namespace flashbench::kernels {

namespace {

using namespace simt;

// Rows per thread are as many as registers hold two sums for. Warps are as many as shared memory
// holds rows for: 227 KB (two thread blocks per SM up to 128 columns) or, for small GPUs, 99 KB.
template <int kDim_, int kRows_, int kColumns_, int kWarps_, int kPass_ = 16>
struct Shape {
  static constexpr int kDim = kDim_;          // head_dim, padded
  static constexpr int kRows = kRows_;        // per thread
  static constexpr int kColumns = kColumns_;  // per block in the loop
  static constexpr int kWarps = kWarps_;      // per thread block
  static constexpr int kPass = kPass_;  // columns of P or dS that go through shared memory at once
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kWarpRows = kRows * kLaneRows;
  static constexpr int kBlockRows = kWarps * kWarpRows;
  static constexpr int kLaneElements = kColumns / kLaneColumns;  // per row of a product
};

template <typename S>
struct Shared {
  float x1[S::kBlockRows][padded(S::kDim)], x2[S::kBlockRows][padded(S::kDim)];
  float y1[S::kColumns][padded(S::kDim)], y2[S::kColumns][padded(S::kDim)];
  float pass[S::kWarps][S::kWarpRows][pass_stride(S::kPass)];
  float logsumexp[S::kColumns], delta[S::kColumns];  // used if the columns are queries
};

template <typename T>
struct Arguments {
  Tensor<const T> q, k, v, d_o;
  Tensor<T> dq, dk, dv;
  const float *logsumexp, *delta;  // [batch, q_heads, q_len]
  int q_heads, kv_heads, heads_per_kv_head, batch;
  int q_len, kv_len, head_dim;
  int visible_from;  // query i sees clamp(i + visible_from, 0, kv_len) keys
  float scale;       // softmax scale
  bool in_aligned, out_aligned;

  __device__ int visible_keys(int query) const {
    return query < q_len ? min(max(query + visible_from, 0), kv_len) : 0;
  }
  __device__ Rows<T> rows(const Tensor<const T>& t, int b, int h, int length) const {
    return {t.head(b, h), t.row_stride, length, head_dim, in_aligned};
  }
  __device__ int64_t first_statistic(int b, int h) const {
    return (int64_t{b} * q_heads + h) * q_len;
  }
};

// The logsumexp in base 2; 0 for a query that sees no key, whose scores are all -infinity.
template <typename T>
__device__ float logsumexp2(const Arguments<T>& arg, int64_t first_statistic, int query) {
  if (query >= arg.q_len) return 0;
  const float logsumexp = arg.logsumexp[first_statistic + query];
  return logsumexp == -kInfinity ? 0.0f : logsumexp * kLog2e;
}
template <typename T>
__device__ float delta_of(const Arguments<T>& arg, int64_t first_statistic, int query) {
  return query >= arg.q_len ? 0.0f : arg.delta[first_statistic + query];
}

// P from a score and dS from an element of dP. Visible elements of either are never -0.
struct Gradient {
  float p, ds;
  __device__ Gradient(float score, float scale2, float logsumexp2, float dp, float delta,
                      bool seen) {
    p = ptx::ex2_approx_ftz(score * scale2 - logsumexp2);
    ds = p * (dp - delta) + 0.0f;
    if (!seen) p = ds = kMasked;
  }
};

template <typename S, typename T>
__device__ void load_rows(const Rows<T>& rows, int first, float* tile) {
  TileLoad<T, S::kThreads, S::kBlockRows, S::kDim, padded(S::kDim)> load;
  load.fetch(rows, first, tile);
  load.commit(tile);
}

template <typename S, typename T>
__device__ void load_columns(const Rows<T>& y1, const Rows<T>& y2, int first, Shared<S>& shared) {
  TileLoad<T, S::kThreads, S::kColumns, S::kDim, padded(S::kDim)> load1, load2;
  load1.fetch(y1, first, shared.y1[0]);
  load2.fetch(y2, first, shared.y2[0]);
  load1.commit(shared.y1[0]);
  load2.commit(shared.y2[0]);
}

template <typename S>
__device__ void clear(float (&sum)[S::kRows][S::kDim / kLaneColumns]) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
#pragma unroll
    for (int c = 0; c < S::kDim / kLaneColumns; ++c) sum[i][c] = 0;
  }
}

template <typename S, typename T>
__device__ void store_rows(const Arguments<T>& arg, const Tensor<T>& to, int b, int h,
                           int first_row, int length, float factor, const Lane& lane,
                           const float (&sum)[S::kRows][S::kDim / kLaneColumns]) {
  T* const head = to.head(b, h);
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const int row = first_row + lane.y + i * kLaneRows;
    if (row >= length) continue;
    store_row(sum[i], factor, lane, arg.head_dim, arg.out_aligned, head + row * to.row_stride);
  }
}

template <typename S>
__device__ void multiply_both(const Shared<S>& shared, const Lane& lane,
                              float (&s)[S::kRows][S::kLaneElements],
                              float (&dp)[S::kRows][S::kLaneElements]) {
  constexpr int kStride = padded(S::kDim);
  multiply_transposed<S::kDim, kStride, kStride>(shared.x1[lane.warp * S::kWarpRows], shared.y1[0],
                                                 lane, s);
  multiply_transposed<S::kDim, kStride, kStride>(shared.x2[lane.warp * S::kWarpRows], shared.y2[0],
                                                 lane, dp);
}

template <typename S, typename T>
__global__ __launch_bounds__(S::kThreads, 2) void query_gradient_kernel(Arguments<T> arg) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Shared<S>& shared = *reinterpret_cast<Shared<S>*>(shared_bytes);
  const Lane lane;
  // The last query blocks come first, because they see the most keys.
  const int heads = arg.batch * arg.q_heads;
  const int tiles = (arg.q_len + S::kBlockRows - 1) / S::kBlockRows;
  const int first_query = (tiles - 1 - static_cast<int>(blockIdx.x) / heads) * S::kBlockRows;
  const int head = static_cast<int>(blockIdx.x) % heads;
  const int b = head / arg.q_heads, h = head % arg.q_heads, kv_h = h / arg.heads_per_kv_head;
  const int warp_query = first_query + lane.warp * S::kWarpRows;
  const int keys = arg.visible_keys(min(first_query + S::kBlockRows, arg.q_len) - 1);
  load_rows<S>(arg.rows(arg.q, b, h, arg.q_len), first_query, shared.x1[0]);
  load_rows<S>(arg.rows(arg.d_o, b, h, arg.q_len), first_query, shared.x2[0]);

  float logsumexp[S::kRows], delta[S::kRows];
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const int query = warp_query + lane.y + i * kLaneRows;
    logsumexp[i] = logsumexp2(arg, arg.first_statistic(b, h), query);
    delta[i] = delta_of(arg, arg.first_statistic(b, h), query);
  }
  float dq[S::kRows][S::kDim / kLaneColumns];
  clear<S>(dq);
  for (int first_key = 0; first_key < keys; first_key += S::kColumns) {
    load_columns(arg.rows(arg.k, b, kv_h, arg.kv_len), arg.rows(arg.v, b, kv_h, arg.kv_len),
                 first_key, shared);
    __syncthreads();
    float s[S::kRows][S::kLaneElements], ds[S::kRows][S::kLaneElements];
    multiply_both<S>(shared, lane, s, ds);
    const bool masked = first_key + S::kColumns > arg.visible_keys(warp_query);
#pragma unroll
    for (int i = 0; i < S::kRows; ++i) {
      const int query = warp_query + lane.y + i * kLaneRows;
      const int visible = masked ? arg.visible_keys(query) - first_key - lane.x : S::kColumns;
#pragma unroll
      for (int j = 0; j < S::kLaneElements; ++j) {
        ds[i][j] = Gradient(s[i][j], arg.scale * kLog2e, logsumexp[i], ds[i][j], delta[i],
                            j * kLaneColumns < visible)
                       .ds;
      }
    }
    accumulate_product<S::kPass, padded(S::kDim)>(ds, masked, shared.pass[lane.warp][0],
                                                  shared.y1[0], lane, dq);
    __syncthreads();
  }
  store_rows<S>(arg, arg.dq, b, h, warp_query, arg.q_len, arg.scale, lane, dq);
}

template <typename S, typename T>
__global__ __launch_bounds__(S::kThreads, 2) void key_gradient_kernel(Arguments<T> arg) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Shared<S>& shared = *reinterpret_cast<Shared<S>*>(shared_bytes);
  const Lane lane;
  // The first key blocks come first, because the most queries see them.
  const int heads = arg.batch * arg.kv_heads;
  const int first_key = static_cast<int>(blockIdx.x) / heads * S::kBlockRows;
  const int head = static_cast<int>(blockIdx.x) % heads;
  const int b = head / arg.kv_heads, kv_h = head % arg.kv_heads;
  const int warp_key = first_key + lane.warp * S::kWarpRows;
  const int first_seeing = max(0, first_key + 1 - arg.visible_from);
  load_rows<S>(arg.rows(arg.k, b, kv_h, arg.kv_len), first_key, shared.x1[0]);
  load_rows<S>(arg.rows(arg.v, b, kv_h, arg.kv_len), first_key, shared.x2[0]);

  float dk[S::kRows][S::kDim / kLaneColumns], dv[S::kRows][S::kDim / kLaneColumns];
  clear<S>(dk);
  clear<S>(dv);
  for (int i = 0; i < arg.heads_per_kv_head; ++i) {
    const int h = kv_h * arg.heads_per_kv_head + i;
    for (int first_query = first_seeing; first_query < arg.q_len; first_query += S::kColumns) {
      load_columns(arg.rows(arg.q, b, h, arg.q_len), arg.rows(arg.d_o, b, h, arg.q_len),
                   first_query, shared);
      if (const int column = static_cast<int>(threadIdx.x); column < S::kColumns) {
        const int64_t first_statistic = arg.first_statistic(b, h);
        shared.logsumexp[column] = logsumexp2(arg, first_statistic, first_query + column);
        shared.delta[column] = delta_of(arg, first_statistic, first_query + column);
      }
      __syncthreads();
      float p[S::kRows][S::kLaneElements], ds[S::kRows][S::kLaneElements];
      multiply_both<S>(shared, lane, p, ds);
      const bool masked = warp_key + S::kWarpRows > arg.visible_keys(first_query) ||
                          first_query + S::kColumns > arg.q_len;
#pragma unroll
      for (int j = 0; j < S::kLaneElements; ++j) {
        const int column = lane.x + j * kLaneColumns;
        const float logsumexp = shared.logsumexp[column], delta = shared.delta[column];
        const int seen = arg.visible_keys(first_query + column) - warp_key - lane.y;
#pragma unroll
        for (int r = 0; r < S::kRows; ++r) {
          const Gradient gradient(p[r][j], arg.scale * kLog2e, logsumexp, ds[r][j], delta,
                                  !masked || r * kLaneRows < seen);
          p[r][j] = gradient.p;
          ds[r][j] = gradient.ds;
        }
      }
      float* const pass = shared.pass[lane.warp][0];
      accumulate_product<S::kPass, padded(S::kDim)>(p, masked, pass, shared.y2[0], lane, dv);
      accumulate_product<S::kPass, padded(S::kDim)>(ds, masked, pass, shared.y1[0], lane, dk);
      __syncthreads();
    }
  }
  store_rows<S>(arg, arg.dk, b, kv_h, warp_key, arg.kv_len, arg.scale, lane, dk);
  store_rows<S>(arg, arg.dv, b, kv_h, warp_key, arg.kv_len, 1, lane, dv);
}

// Calls body(Shape) with the largest shape that fits; returns false if none does.
template <typename Body>
bool with_shape(const Problem& p, const DeviceInfo& device, const Body& body) {
  const auto fits = [&]<typename S>(S shape) {
    if (p.head_dim > S::kDim ||
        static_cast<int64_t>(sizeof(Shared<S>)) > device.shared_memory_bytes)
      return false;
    body(shape);
    return true;
  };
  return fits(Shape<64, 8, 32, 4>{}) || (p.head_dim <= 64 && fits(Shape<64, 8, 32, 2>{})) ||
         fits(Shape<128, 4, 32, 4>{}) || (p.head_dim <= 128 && fits(Shape<128, 4, 32, 2>{})) ||
         fits(Shape<256, 2, 32, 4>{}) || fits(Shape<256, 2, 16, 2>{});
}

template <typename S, typename T>
CudaKernel<Arguments<T>> query_gradient() {
  return {"simt_backward_query_gradient", query_gradient_kernel<S, T>, S::kThreads,
          sizeof(Shared<S>)};
}
template <typename S, typename T>
CudaKernel<Arguments<T>> key_gradient() {
  return {"simt_backward_key_gradient", key_gradient_kernel<S, T>, S::kThreads, sizeof(Shared<S>)};
}

template <typename S, typename T>
void launch_shape(const Problem& p, const Inputs& in, const Outputs& out, const float* delta,
                  Stream stream) {
  Arguments<T> arg;
  arg.q = tensor<const T>(in.q);
  arg.k = tensor<const T>(in.k);
  arg.v = tensor<const T>(in.v);
  arg.d_o = tensor<const T>(in.d_o);
  arg.dq = tensor<T>(out.dq);
  arg.dk = tensor<T>(out.dk);
  arg.dv = tensor<T>(out.dv);
  arg.logsumexp = in.logsumexp;
  arg.delta = delta;
  arg.q_heads = static_cast<int>(p.q_heads);
  arg.kv_heads = static_cast<int>(p.kv_heads);
  arg.heads_per_kv_head = static_cast<int>(p.heads_per_kv_head());
  arg.batch = static_cast<int>(p.batch);
  arg.q_len = static_cast<int>(p.q_len);
  arg.kv_len = static_cast<int>(p.kv_len);
  arg.head_dim = static_cast<int>(p.head_dim);
  arg.visible_from = static_cast<int>(band(p).end_from);
  arg.scale = static_cast<float>(p.softmax_scale());
  arg.in_aligned =
      rows_aligned(in.q) && rows_aligned(in.k) && rows_aligned(in.v) && rows_aligned(in.d_o);
  arg.out_aligned = rows_aligned(out.dq) && rows_aligned(out.dk) && rows_aligned(out.dv);
  const auto tiles = [](int64_t length) { return (length + S::kBlockRows - 1) / S::kBlockRows; };
  launch_kernel(query_gradient<S, T>(), tiles(p.q_len) * p.batch * p.q_heads, arg, stream);
  launch_kernel(key_gradient<S, T>(), tiles(p.kv_len) * p.batch * p.kv_heads, arg, stream);
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
    text = "simt_backward " + std::to_string(S::kBlockRows) + "x" + std::to_string(S::kColumns);
  });
  return text;
}

// The workspace holds D.
size_t workspace_bytes(const Launch& at) {
  return static_cast<size_t>(at.problem.query_rows()) * sizeof(float);
}

// For D: O and dO are read, D is written. For dQ: Q, dO, L and D are read once; every block of
// queries reads the keys and values that it sees. For dK and dV: K and V are read once; every block
// of keys reads Q, dO, L and D of the queries that see any of its keys. dQ, dK and dV are written.
int64_t requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  int64_t keys = 0, queries = 0;
  with_shape(p, at.device, [&](auto shape) {
    constexpr int64_t kRows = decltype(shape)::kBlockRows;
    for (int64_t first = 0; first < p.q_len; first += kRows) {
      keys += p.visible_keys(std::min(p.q_len, first + kRows) - 1).end;
    }
    for (int64_t first = 0; first < p.kv_len; first += kRows) {
      queries += p.q_len - p.queries_that_see(first).first;
    }
  });
  const int64_t heads = p.batch * p.q_heads, element = element_size(p.dtype);
  const int64_t passing = heads * p.head_dim * 2 * (keys + queries);
  const int64_t statistics = 3 * p.query_rows() + 2 * heads * queries;
  return element * (5 * p.query_elements() + 4 * p.key_elements() + passing) +
         static_cast<int64_t>(sizeof(float)) * statistics;
}

void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  auto* const delta = static_cast<float*>(workspace);
  naive_row_dots(in.o, in.d_o, delta, static_cast<cudaStream_t>(stream.cuda));
  with_shape(at.problem, at.device, [&](auto shape) {
    with_type(at.problem.dtype, [&](auto element) {
      launch_shape<decltype(shape), decltype(element)>(at.problem, in, out, delta, stream);
    });
  });
}

// The facts of both of its kernels. D is computed by a kernel of naive.
std::vector<KernelFacts> facts(const Launch& at) {
  std::vector<KernelFacts> found;
  with_shape(at.problem, at.device, [&](auto shape) {
    with_type(at.problem.dtype, [&](auto element) {
      found = {kernel_facts(query_gradient<decltype(shape), decltype(element)>()),
               kernel_facts(key_gradient<decltype(shape), decltype(element)>())};
    });
  });
  return found;
}

}  // namespace

extern const AttentionKernel kSimtBackward{.name = "simt_backward",
                                           .family = "simt",
                                           .device = DeviceKind::cuda,
                                           .pass = Pass::backward,
                                           .why_unsupported = why_unsupported,
                                           .variant = variant,
                                           .workspace_bytes = workspace_bytes,
                                           .requested_bytes = requested_bytes,
                                           .facts = facts,
                                           .launch = launch};

}  // namespace flashbench::kernels
