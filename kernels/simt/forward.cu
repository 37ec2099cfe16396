// Fused attention forward in fp32 arithmetic for any GPU, dtype and alignment. A thread block owns
// a block of queries and loops over blocks of K and V in shared memory. O stays in registers; the
// online softmax (Milakov and Gimelshein 2018, arXiv 1805.02867) rescales it where a maximum rises.
//
// Q, K and P are stored transposed, so that both products are sums of outer products. A warp
// computes its rows for all keys of a block, so that S and P never leave the warp. V is copied
// while S is computed, and the next K while O is computed, so that one buffer of each is enough.
#include <algorithm>
#include <limits>

#include "kernels/attention.h"
#include "kernels/common/alignment.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/ptx/ex2.h"
#include "kernels/simt/outer_product.cuh"
#include "kernels/simt/tile.cuh"

namespace flashbench::kernels {

namespace {

using namespace simt;

// Rows per thread and keys per block are as many as the registers beside O allow. Warps are as many
// as Q leaves room for in 227 KB of shared memory (two thread blocks per SM up to 128 columns), 163
// KB or, for small GPUs, 99 KB.
template <int kDim_, int kRows_, int kKeys_, int kWarps_>
struct Shape {
  static constexpr int kDim = kDim_;      // head_dim, padded
  static constexpr int kRows = kRows_;    // per thread
  static constexpr int kKeys = kKeys_;    // per block
  static constexpr int kWarps = kWarps_;  // per thread block
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kThreadBlocks = 8 / kWarps;  // that an SM has registers for
  static constexpr int kWarpQueries = kRows * kLaneRows;
  static constexpr int kQueries = kWarps * kWarpQueries;   // per thread block
  static constexpr int kColumns = kKeys / kLaneColumns;    // of S, per thread
  static constexpr int kDimColumns = kDim / kLaneColumns;  // of O, per thread
};

// A tile of Q or K, transposed. The padding spreads the copies of a warp over all banks.
template <int kRows>
using TransposedSteps = Steps<kRows, 4>;

template <typename S>
struct Shared {
  float q[TransposedSteps<S::kQueries>::offset(S::kDim)];
  float k[TransposedSteps<S::kKeys>::offset(S::kDim)];
  float v[S::kKeys][S::kDim];
  float p[S::kWarps][S::kKeys][S::kWarpQueries];
};

template <typename T>
struct Arguments {
  Tensor<const T> q, k, v;
  Tensor<T> o;
  float* logsumexp;
  int q_heads, heads_per_kv_head, heads;  // `heads` over the whole batch
  int q_len, kv_len, head_dim;
  int visible_from;  // query i sees clamp(i + visible_from, 0, kv_len) keys
  float scale;       // takes Q K^T to scores in base 2
  bool v_aligned, o_aligned;

  __device__ int visible_keys(int query) const { return min(max(query + visible_from, 0), kv_len); }
};

// Copies an element to shared memory. It is there after __pipeline_wait_prior(0) and a barrier.
template <typename T>
__device__ void copy_element(const T* from, bool exists, float* to) {
  if (!exists) {
    *to = 0;
  } else if constexpr (sizeof(T) == sizeof(float)) {
    __pipeline_memcpy_async(to, from, sizeof(float));
  } else {
    *to = to_float(*from);
  }
}

// Loads a tile [kTileRows, S::kDim] to shared memory as TransposedSteps. Missing columns are 0.
// Missing rows are copies of the last row: missing keys are masked, and missing queries are not
// stored.
template <typename S, int kTileRows, typename T>
__device__ void copy_transposed(const Rows<T>& rows, int first_row, float* tile) {
  using To = TransposedSteps<kTileRows>;
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));  // recomputed for every tile, to leave registers for sums
  const int row = thread / 8, column = thread % 8 * 4;
#pragma unroll
  for (int i = 0; i < kTileRows; i += S::kThreads / 8) {
    const int at = min(first_row + row + i, rows.length - 1);
    const T* const from = rows.data + at * rows.row_stride + column;
    float* const to = tile + To::offset(column) + row + i;
#pragma unroll
    for (int c = 0; c < S::kDim; c += 32) {
#pragma unroll
      for (int j = c; j < c + 4; ++j) {
        copy_element(from + j, column + c < rows.head_dim, to + To::offset(j));
      }
    }
  }
}

// How many steps of each product an iteration of its loop unrolls: enough to amortise the loop, but
// not so many that registers run short.
constexpr int kUnrollS = 8, kUnrollO = 2;

// Exponentials are relative to a running maximum. It is raised only when a score exceeds it by more
// than this, in base 2. Most blocks then need neither their own maxima nor a rescaling of O.
constexpr float kLag = 8;
constexpr float kLowest = std::numeric_limits<float>::lowest();  // initial maximum of a row

template <typename S>
struct RowState {
  float maximum[S::kRows], sum[S::kRows];  // sums of this lane's columns only
};

// How many columns of the block that begins at first_key are visible to row `i` of the lane.
template <typename S, typename T>
__device__ int visible_columns(const Arguments<T>& arg, const Lane& lane, int first_query,
                               int first_key, int i) {
  const int query = first_query + place<S::kRows, kLaneRows>(lane.y, i);
  return arg.visible_keys(query) - first_key - place<S::kColumns, kLaneColumns>(lane.x, 0);
}

// Sets the masked elements of a block to `hidden`.
template <typename S, typename T>
__device__ void hide(const Arguments<T>& arg, const Lane& lane, int first_query, int first_key,
                     float hidden, float (&s)[S::kRows][S::kColumns]) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const int visible = visible_columns<S>(arg, lane, first_query, first_key, i);
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) {
      if (place<S::kColumns, kLaneColumns>(0, j) >= visible) s[i][j] = hidden;
    }
  }
}

// If a score of the warp exceeds its maximum by too much, raises the maxima of the rows to those of
// S, in base 2, and rescales O and the sums.
template <typename S>
__device__ void raise_maxima(const float (&s)[S::kRows][S::kColumns], RowState<S>& state,
                             float (&o)[S::kRows][S::kDimColumns]) {
  float maximum[S::kRows];
  bool beyond = false;
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    maximum[i] = s[i][0];
#pragma unroll
    for (int j = 1; j < S::kColumns; ++j) maximum[i] = fmaxf(maximum[i], s[i][j]);
    beyond = beyond || maximum[i] > state.maximum[i] + kLag;
  }
  if (!__any_sync(0xffffffff, beyond)) return;
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const float raised = fmaxf(state.maximum[i], row_max(maximum[i]));
    const float rescale = ptx::ex2_approx_ftz(state.maximum[i] - raised);
    state.maximum[i] = raised;
    state.sum[i] *= rescale;
#pragma unroll
    for (int c = 0; c < S::kDimColumns; ++c) o[i][c] *= rescale;
  }
}

// Turns S into P and adds P to the sums.
template <typename S>
__device__ void exponentiate(RowState<S>& state, float (&s)[S::kRows][S::kColumns]) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) {
      s[i][j] = ptx::ex2_approx_ftz(s[i][j] - state.maximum[i]);
      state.sum[i] += s[i][j];
    }
  }
}

// Stores a warp's P transposed to shared memory, as steps of the second product.
template <typename S>
__device__ void store_transposed(const float (&p)[S::kRows][S::kColumns], const Lane& lane,
                                 float* tile) {
  using Vector = typename Factors<S::kRows, kLaneRows>::Vector;
  constexpr int kWidth = vector_width(S::kRows);
#pragma unroll
  for (int j = 0; j < S::kColumns; ++j) {
    float* const step = tile + place<S::kColumns, kLaneColumns>(lane.x, j) * S::kWarpQueries;
#pragma unroll
    for (int i = 0; i < S::kRows; i += kWidth) {
      Vector vector;
#pragma unroll
      for (int r = 0; r < kWidth; ++r) vector.values[r] = p[exchanged(i + r)][j];
      *reinterpret_cast<Vector*>(step + place<S::kRows, kLaneRows>(lane.y, i)) = vector;
    }
  }
}

// S = Q K^T for the warp's queries and the block's keys.
template <typename S>
__device__ void multiply_queries_keys(const Shared<S>& shared, const Lane& lane,
                                      float (&s)[S::kRows][S::kColumns]) {
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) s[i][j] = 0;
  }
  add_product<false, false, kUnrollS, S::kDim, TransposedSteps<S::kQueries>,
              TransposedSteps<S::kKeys>>(
      shared.q + lane.warp * S::kWarpQueries + place<S::kRows, kLaneRows>(lane.y, 0),
      shared.k + place<S::kColumns, kLaneColumns>(lane.x, 0), s);
}

// O += P V.
template <typename S>
__device__ void add_weighted_values(Shared<S>& shared, const Lane& lane, bool masked,
                                    const float (&p)[S::kRows][S::kColumns],
                                    float (&o)[S::kRows][S::kDimColumns]) {
  using StepsP = Steps<S::kWarpQueries>;
  using StepsV = Steps<S::kDim>;
  float* const tile = shared.p[lane.warp][0];
  store_transposed<S>(p, lane, tile);
  __syncwarp();
  const float* const left = tile + place<S::kRows, kLaneRows>(lane.y, 0);
  const float* const right = shared.v[0] + place<S::kDimColumns, kLaneColumns>(lane.x, 0);
  if (masked) {
    add_product<true, true, kUnrollO, S::kKeys, StepsP, StepsV>(left, right, o);
  } else {
    add_product<false, true, kUnrollO, S::kKeys, StepsP, StepsV>(left, right, o);
  }
}

template <typename S, typename T, int kDimColumns>
__device__ void store_outputs(const Arguments<T>& arg, const Lane& lane, int batch, int h,
                              int first_query, const RowState<S>& state,
                              const float (&o)[S::kRows][kDimColumns]) {
  T* const o_head = arg.o.head(batch, h);
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    const int query = first_query + place<S::kRows, kLaneRows>(lane.y, i);
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
__global__ __launch_bounds__(S::kThreads, S::kThreadBlocks) void forward_kernel(Arguments<T> arg) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Shared<S>& shared = *reinterpret_cast<Shared<S>*>(shared_bytes);
  const Lane lane;
  // The last query blocks come first, because they see the most keys.
  const int tiles = (arg.q_len + S::kQueries - 1) / S::kQueries;
  const int tile = tiles - 1 - static_cast<int>(blockIdx.x / arg.heads);
  const int head = static_cast<int>(blockIdx.x) % arg.heads;
  const int batch = head / arg.q_heads, h = head % arg.q_heads, kv_h = h / arg.heads_per_kv_head;
  const int first_query = tile * S::kQueries;
  const int warp_query = first_query + lane.warp * S::kWarpQueries;
  const int keys = arg.visible_keys(min(first_query + S::kQueries, arg.q_len) - 1);
  const int warp_keys = warp_query < arg.q_len
                            ? arg.visible_keys(min(warp_query + S::kWarpQueries, arg.q_len) - 1)
                            : 0;
  // Q and K are copied element by element, whatever their alignment.
  const Rows<T> q_rows{arg.q.head(batch, h), arg.q.row_stride, arg.q_len, arg.head_dim, false};
  const Rows<T> k_rows{arg.k.head(batch, kv_h), arg.k.row_stride, arg.kv_len, arg.head_dim, false};
  const Rows<T> v_rows{arg.v.head(batch, kv_h), arg.v.row_stride, arg.kv_len, arg.head_dim,
                       arg.v_aligned};
  copy_transposed<S, S::kQueries>(q_rows, first_query, shared.q);
  copy_transposed<S, S::kKeys>(k_rows, 0, shared.k);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < TransposedSteps<S::kQueries>::offset(S::kDim);
       i += S::kThreads) {
    shared.q[i] *= arg.scale;
  }
  __syncthreads();

  TileLoad<T, S::kThreads, S::kKeys, S::kDim, S::kDim> v_load;
  RowState<S> state;
  float o[S::kRows][S::kDimColumns];
#pragma unroll
  for (int i = 0; i < S::kRows; ++i) {
    state.maximum[i] = kLowest;
    state.sum[i] = 0;
#pragma unroll
    for (int c = 0; c < S::kDimColumns; ++c) o[i][c] = 0;
  }
  for (int first_key = 0; first_key < keys; first_key += S::kKeys) {
    const int next_key = first_key + S::kKeys;
    const bool seen = first_key < warp_keys;
    v_load.fetch(v_rows, first_key, shared.v[0]);
    float s[S::kRows][S::kColumns];
    if (seen) multiply_queries_keys<S>(shared, lane, s);
    v_load.commit(shared.v[0]);
    __syncthreads();
    if (next_key < keys) copy_transposed<S, S::kKeys>(k_rows, next_key, shared.k);
    if (seen) {
      const bool masked = next_key > arg.visible_keys(warp_query);
      if (masked) hide<S>(arg, lane, warp_query, first_key, -kInfinity, s);
      raise_maxima(s, state, o);
      exponentiate(state, s);
      if (masked) hide<S>(arg, lane, warp_query, first_key, kMasked, s);
      add_weighted_values<S>(shared, lane, masked, s, o);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
  }
  store_outputs(arg, lane, batch, h, warp_query, state, o);
}

// Calls body(Shape) with the largest shape that fits; returns false if none does.
template <typename Body>
bool with_shape(const Problem& p, const DeviceInfo& device, const Body& body) {
  const auto fits = [&]<typename S>(S shape) {
    if (p.head_dim > S::kDim || sizeof(Shared<S>) > static_cast<size_t>(device.shared_memory_bytes))
      return false;
    body(shape);
    return true;
  };
  return fits(Shape<32, 8, 64, 4>{}) || fits(Shape<64, 8, 64, 4>{}) ||
         fits(Shape<128, 8, 32, 4>{}) || (p.head_dim <= 128 && fits(Shape<128, 8, 32, 2>{})) ||
         fits(Shape<256, 4, 32, 8>{}) || fits(Shape<256, 4, 32, 4>{}) ||
         fits(Shape<256, 4, 16, 2>{});
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
  arg.visible_from = static_cast<int>(band(p).end_from);
  arg.scale = static_cast<float>(p.softmax_scale()) * kLog2e;
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

// Q is read once; O and L are written once. Every block of queries reads the keys and values that
// it sees.
int64_t requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  int64_t keys = 0;
  with_shape(p, at.device, [&](auto shape) {
    constexpr int64_t kQueries = decltype(shape)::kQueries;
    for (int64_t first = 0; first < p.q_len; first += kQueries) {
      keys += p.visible_keys(std::min(p.q_len, first + kQueries) - 1).end;
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
