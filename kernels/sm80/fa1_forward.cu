// Attention forward with FlashAttention-1's schedule (Dao et al. 2022), the step before forward.cu
// in the ladder of kernels. The outer loop goes over K and V, the inner loop over 16 queries at a
// time; the keys of a block are split over the warps. Every step combines the warps' maxima, sums
// and parts of O through shared memory. Between two blocks of keys the unnormalised O goes to
// memory and back.
#include <algorithm>
#include <limits>
#include <numbers>
#include <string>

#include "kernels/attention.h"
#include "kernels/common/forward_tensors.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/common/tensor_cores.h"
#include "kernels/common/variant.h"
#include "kernels/mma/shared_tile.h"
#include "kernels/ptx/cp_async.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/mma.h"
#include "kernels/ptx/shared_address.h"

namespace flashbench::kernels::fa1 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 16;  // queries per step

struct Arguments {
  ForwardTensors tensors;
  int heads, heads_per_kv_head, q_len, kv_len, head_dim;
  int diagonal;  // query i sees keys 0 to i + diagonal
  int splits;    // thread blocks per head; each takes the queries of every splits-th step
  float scale_log2;
  // State between blocks of keys: the unnormalised O [batch, heads, q_len, compiled head_dim], and
  // each row's maximum (in base 2) and sum.
  float *partial_o, *maximum, *sum;

  __device__ int visible_keys(int query) const { return max(0, min(kv_len, query + diagonal + 1)); }
};

template <typename T, int kHeadDim, int kBlockKv>
struct Forward {
  static constexpr int kWarpKeys = kBlockKv / kWarps;
  static constexpr int kKeyTiles = kWarpKeys / 8;
  static constexpr int kDimTiles = kHeadDim / 8;
  static constexpr int kDimSteps = kHeadDim / 16;
  static_assert(kWarpKeys % 16 == 0);

  using QTile = mma::SharedTile<kRows, kHeadDim>;
  using KvTile = mma::SharedTile<kBlockKv, kHeadDim>;
  // A warp's part of O. 8 floats of padding per row keep the 8 rows of a store in different banks.
  using PartialO = float[kRows][kHeadDim + 8];
  struct Shared {
    alignas(1024) char q[2][QTile::kBytes];
    alignas(1024) char k[KvTile::kBytes], v[KvTile::kBytes];
    PartialO o[kWarps];
    float maximum[kWarps][kRows], sum[kWarps][kRows];
  };

  // The mapping of threads to the 16 rows of O when the warps' parts are combined: each thread
  // takes kQuads groups of 4 columns.
  static constexpr int kThreadsPerRow = kThreads / kRows;
  static constexpr int kQuads = kHeadDim / (4 * kThreadsPerRow);

  // Copies rows [0, rows) of a tensor with `head_dim` columns to a tile; fills the rest with zeros.
  template <typename Tile, int kTileRows>
  static __device__ void load(void* tile, const T* from, int64_t row_stride, int rows,
                              int head_dim) {
    constexpr int kChunks = kHeadDim / 8;
    const uint32_t to = ptx::shared_address(tile);
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const bool inside = row < rows && chunk * 8 < head_dim;
      ptx::cp_async_16(to + chunk / Tile::kRowChunks * Tile::kPanelBytes +
                           Tile::chunk_offset(row, chunk % Tile::kRowChunks),
                       from + row * row_stride + chunk * 8, inside ? 16 : 0);
    }
  }

  // Computes S of this warp's keys in base 2; -infinity for keys that a row does not see.
  static __device__ void scores(float (&s)[kKeyTiles][4], const char* q_tile, const char* k_tile,
                                const Arguments& a, int first_query, int first_key) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp_key = static_cast<int>(threadIdx.x) / 32 * kWarpKeys;
    const uint32_t q_lane = ptx::shared_address(q_tile) + QTile::chunk_offset(lane % 16, lane / 16);
    const uint32_t k_lane = ptx::shared_address(k_tile) +
                            KvTile::chunk_offset(warp_key + lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (auto& tile : s) {
#pragma unroll
      for (float& x : tile) x = 0;
    }
#pragma unroll
    for (int step = 0; step < kDimSteps; ++step) {
      uint32_t q[4];
      ptx::ldmatrix_x4(q, QTile::column_step(q_lane, step));
#pragma unroll
      for (int pair = 0; pair < kKeyTiles / 2; ++pair) {
        uint32_t k[4];
        ptx::ldmatrix_x4(k, KvTile::column_step(k_lane, step) + pair * 16 * KvTile::kRowBytes);
        ptx::mma_m16n8k16<T>(s[2 * pair], q, k[0], k[1]);
        ptx::mma_m16n8k16<T>(s[2 * pair + 1], q, k[2], k[3]);
      }
    }
    const int lane_key = first_key + warp_key + lane % 4 * 2;
    const int limits[2] = {a.visible_keys(first_query + lane / 4) - lane_key,
                           a.visible_keys(first_query + lane / 4 + 8) - lane_key};
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[t][e] = 8 * t + e % 2 < limits[e / 2] ? s[t][e] * a.scale_log2 : -kInfinity;
      }
    }
  }

  // Writes this warp's P V to shared memory.
  static __device__ void multiply_pv(PartialO& to, const uint32_t (&p)[kKeyTiles / 2][4],
                                     const char* v_tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp_key = static_cast<int>(threadIdx.x) / 32 * kWarpKeys;
    const uint32_t v_lane =
        ptx::shared_address(v_tile) + KvTile::chunk_offset(warp_key + lane % 16, lane / 16);
    float o[kDimTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kKeyTiles / 2; ++step) {
#pragma unroll
      for (int pair = 0; pair < kDimSteps; ++pair) {
        uint32_t v[4];
        ptx::ldmatrix_x4_trans(v,
                               KvTile::column_step(v_lane, pair) + step * 16 * KvTile::kRowBytes);
        ptx::mma_m16n8k16<T>(o[2 * pair], p[step], v[0], v[1]);
        ptx::mma_m16n8k16<T>(o[2 * pair + 1], p[step], v[2], v[3]);
      }
    }
#pragma unroll
    for (int t = 0; t < kDimTiles; ++t) {
      const int column = 8 * t + lane % 4 * 2;
      *reinterpret_cast<float2*>(&to[lane / 4][column]) = {o[t][0], o[t][1]};
      *reinterpret_cast<float2*>(&to[lane / 4 + 8][column]) = {o[t][2], o[t][3]};
    }
  }

  // Maximum and sum of the warps' values of a row.
  static __device__ float largest(const float (&of)[kWarps][kRows], int row) {
    return fmaxf(fmaxf(of[0][row], of[1][row]), fmaxf(of[2][row], of[3][row]));
  }
  static __device__ float total(const float (&of)[kWarps][kRows], int row) {
    return (of[0][row] + of[1][row]) + (of[2][row] + of[3][row]);
  }

  static __device__ void run(const Arguments& a) {
    extern __shared__ __align__(1024) char shared_memory[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int split = static_cast<int>(blockIdx.x) % a.splits;
    const int64_t batch_head = blockIdx.x / static_cast<unsigned>(a.splits);
    const int64_t batch = batch_head / a.heads, head = batch_head % a.heads;
    const int64_t kv_head = head / a.heads_per_kv_head;
    const T* q = static_cast<const T*>(a.tensors.q) + batch * a.tensors.q_strides.batch +
                 head * a.tensors.q_strides.head;
    const T* k = static_cast<const T*>(a.tensors.k) + batch * a.tensors.k_strides.batch +
                 kv_head * a.tensors.k_strides.head;
    const T* v = static_cast<const T*>(a.tensors.v) + batch * a.tensors.v_strides.batch +
                 kv_head * a.tensors.v_strides.head;
    T* o = static_cast<T*>(a.tensors.o) + batch * a.tensors.o_strides.batch +
           head * a.tensors.o_strides.head;
    const int64_t head_rows = batch_head * a.q_len;

    const int steps = (a.q_len + kRows - 1) / kRows;
    const auto keys_of_step = [&](int step) {
      return a.visible_keys(min(a.q_len, (step + 1) * kRows) - 1);
    };
    const auto load_q = [&](int step, int buffer) {
      load<QTile, kRows>(shared.q[buffer], q + int64_t{step} * kRows * a.tensors.q_strides.row,
                         a.tensors.q_strides.row, a.q_len - step * kRows, a.head_dim);
      ptx::cp_async_commit_group();
    };

    // This thread's row and first column in the combination.
    const int my_row = static_cast<int>(threadIdx.x) / kThreadsPerRow;
    const int my_column = static_cast<int>(threadIdx.x) % kThreadsPerRow * 4;

    // Set rows that see no key to 0; no step writes them.
    for (int step = split; step < steps; step += a.splits) {
      const int row = step * kRows + my_row;
      if (row >= a.q_len || a.visible_keys(row) > 0) continue;
      for (int column = my_column; column < a.head_dim; column += 4 * kThreadsPerRow) {
        *reinterpret_cast<uint2*>(o + row * a.tensors.o_strides.row + column) = {0, 0};
      }
      if (my_column == 0) a.tensors.logsumexp[head_rows + row] = -kInfinity;
    }

    const int key_end = keys_of_step(steps - 1);
    for (int first_key = 0; first_key < key_end; first_key += kBlockKv) {
      // Start at the first step that sees this block. All later steps see it too.
      int step = split;
      if (first_key > a.diagonal) {
        step = max(step, (first_key - a.diagonal) / kRows / a.splits * a.splits + split);
      }
      while (step < steps && keys_of_step(step) <= first_key) step += a.splits;
      if (step >= steps) break;

      load<KvTile, kBlockKv>(shared.k, k + first_key * a.tensors.k_strides.row,
                             a.tensors.k_strides.row, key_end - first_key, a.head_dim);
      load<KvTile, kBlockKv>(shared.v, v + first_key * a.tensors.v_strides.row,
                             a.tensors.v_strides.row, key_end - first_key, a.head_dim);
      int buffer = 0;
      load_q(step, buffer);
      for (; step < steps; step += a.splits, buffer ^= 1) {
        const int first_query = step * kRows;
        const int64_t my_index = head_rows + first_query + my_row;
        const bool mine = first_query + my_row < a.q_len;
        const bool last = keys_of_step(step) <= first_key + kBlockKv;

        // The state that earlier blocks have left for this thread's row.
        float old_maximum = -kInfinity, old_sum = 0;
        float4 sums[kQuads] = {};
        if (first_key > 0 && mine) {
          old_maximum = a.maximum[my_index];
          old_sum = a.sum[my_index];
#pragma unroll
          for (int i = 0; i < kQuads; ++i) {
            sums[i] = *reinterpret_cast<const float4*>(a.partial_o + my_index * kHeadDim +
                                                       my_column + i * 4 * kThreadsPerRow);
          }
        }
        ptx::cp_async_wait_group<0>();
        __syncthreads();  // Q (and K and V) have arrived, and the previous step is combined
        if (step + a.splits < steps) load_q(step + a.splits, buffer ^ 1);

        float s[kKeyTiles][4];
        scores(s, shared.q[buffer], shared.k, a, first_query, first_key);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float m = -kInfinity;
#pragma unroll
          for (int t = 0; t < kKeyTiles; ++t)
            m = fmaxf(m, fmaxf(s[t][2 * half], s[t][2 * half + 1]));
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
          if (lane % 4 == 0) shared.maximum[warp][lane / 4 + 8 * half] = m;
        }
        __syncthreads();  // all warps' maxima are written

        uint32_t p[kKeyTiles / 2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float m = largest(shared.maximum, lane / 4 + 8 * half);
          const float base = m == -kInfinity ? 0 : m;  // 0 for a row that sees no key of this block
          float sum = 0;
#pragma unroll
          for (int t = 0; t < kKeyTiles; ++t) {
            const float p0 = ptx::ex2_approx_ftz(s[t][2 * half] - base);
            const float p1 = ptx::ex2_approx_ftz(s[t][2 * half + 1] - base);
            sum += p0 + p1;
            p[t / 2][t % 2 * 2 + half] = ptx::cvt_rn_x2<T>(p0, p1);
          }
          sum += __shfl_xor_sync(~0u, sum, 1);
          sum += __shfl_xor_sync(~0u, sum, 2);
          if (lane % 4 == 0) shared.sum[warp][lane / 4 + 8 * half] = sum;
        }
        multiply_pv(shared.o[warp], p, shared.v);
        __syncthreads();  // all warps' sums and parts of O are written

        if (!mine) continue;
        const float block_maximum = largest(shared.maximum, my_row);
        const float new_maximum = fmaxf(old_maximum, block_maximum);
        const float base = new_maximum == -kInfinity ? 0 : new_maximum;
        const float old_factor = ptx::ex2_approx_ftz(old_maximum - base);
        const float block_factor = ptx::ex2_approx_ftz(block_maximum - base);
        const float new_sum = old_sum * old_factor + total(shared.sum, my_row) * block_factor;
#pragma unroll
        for (int i = 0; i < kQuads; ++i) {
          const int column = my_column + i * 4 * kThreadsPerRow;
          float4 part = {};
#pragma unroll
          for (int w = 0; w < kWarps; ++w) {
            const float4 x = *reinterpret_cast<const float4*>(&shared.o[w][my_row][column]);
            part = {part.x + x.x, part.y + x.y, part.z + x.z, part.w + x.w};
          }
          sums[i] = {sums[i].x * old_factor + part.x * block_factor,
                     sums[i].y * old_factor + part.y * block_factor,
                     sums[i].z * old_factor + part.z * block_factor,
                     sums[i].w * old_factor + part.w * block_factor};
        }
        if (!last) {
#pragma unroll
          for (int i = 0; i < kQuads; ++i) {
            *reinterpret_cast<float4*>(a.partial_o + my_index * kHeadDim + my_column +
                                       i * 4 * kThreadsPerRow) = sums[i];
          }
          if (my_column == 0) {
            a.maximum[my_index] = new_maximum;
            a.sum[my_index] = new_sum;
          }
        } else if (a.visible_keys(first_query + my_row) > 0) {
          const float inverse = 1 / new_sum;
#pragma unroll
          for (int i = 0; i < kQuads; ++i) {
            const int column = my_column + i * 4 * kThreadsPerRow;
            if (column < a.head_dim) {
              *reinterpret_cast<uint2*>(o + (first_query + my_row) * a.tensors.o_strides.row +
                                        column) = {
                  ptx::cvt_rn_x2<T>(sums[i].x * inverse, sums[i].y * inverse),
                  ptx::cvt_rn_x2<T>(sums[i].z * inverse, sums[i].w * inverse)};
            }
          }
          if (my_column == 0) {
            a.tensors.logsumexp[my_index] =
                (new_maximum + log2f(new_sum)) * std::numbers::ln2_v<float>;
          }
        }
      }
      ptx::cp_async_wait_group<0>();
      __syncthreads();  // all warps have finished with K and V
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ Arguments a) {
  Kernel::run(a);
}

// For head dimensions up to kHeadDim.
template <int kHeadDim, int kBlockKv>
constexpr Variant<Arguments> variant_of() {
  using Half = Forward<__half, kHeadDim, kBlockKv>;
  using BFloat16 = Forward<__nv_bfloat16, kHeadDim, kBlockKv>;
  static_assert(sizeof(typename Half::Shared) == sizeof(typename BFloat16::Shared));
  return {kHeadDim,
          {.q = kRows, .kv = kBlockKv, .warps = kWarps},
          kThreads,
          sizeof(typename Half::Shared),
          forward_kernel<Half>,
          forward_kernel<BFloat16>};
}

constexpr Variant<Arguments> kUpTo64 = variant_of<64, 256>(), kUpTo128 = variant_of<128, 128>();

const Variant<Arguments>& variant_for(const Problem& p) {
  return p.head_dim <= kUpTo64.head_dim ? kUpTo64 : kUpTo128;
}

CudaKernel<Arguments> kernel_for(const Problem& p) {
  return variant_for(p).kernel("fa1_forward", p.dtype);
}

std::vector<KernelFacts> facts(const Launch& at) {
  return {kernel_facts(kernel_for(at.problem))};
}

std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
  if (p.head_dim > kUpTo128.head_dim) return "head_dim must be at most 128";
  if (variant_for(p).shared_bytes > device.shared_memory_bytes) {
    return "needs more shared memory than a thread block of this GPU can have";
  }
  return why_no_tensor_cores(p, device);
}

std::string variant(const Launch& at) {
  return "fa1_forward 16x" + std::to_string(variant_for(at.problem).blocks.kv);
}

// Thread blocks per head: enough that each multiprocessor gets two.
int64_t splits(const Launch& at) {
  const Problem& p = at.problem;
  const int64_t heads = p.batch * p.q_heads;
  const int64_t steps = (p.q_len + kRows - 1) / kRows;
  return std::clamp<int64_t>((2 * at.device.threads + heads - 1) / heads, 1, steps);
}

size_t workspace_bytes(const Launch& at) {
  const Problem& p = at.problem;
  const int64_t floats = p.query_rows() * (variant_for(p).head_dim + 2);
  return static_cast<size_t>(floats) * sizeof(float);
}

// Each thread block reads the keys and values that its queries see, once. Each step reads 16 rows
// of Q. Between two blocks of keys each step writes its O, maximum and sum to the workspace and
// reads them back.
int64_t requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  const int64_t block_kv = variant_for(p).blocks.kv, splits_of_head = splits(at);
  const int64_t steps = (p.q_len + kRows - 1) / kRows;
  int64_t keys = 0, q_rows = 0, carried_rows = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t rows = std::min(p.q_len, (step + 1) * kRows) - step * kRows;
    const int64_t visible = p.visible_keys(step * kRows + rows - 1).end;
    const int64_t blocks = (visible + block_kv - 1) / block_kv;
    q_rows += rows * blocks;
    carried_rows += rows * std::max<int64_t>(0, blocks - 1);
    const bool last_of_split = step + splits_of_head >= steps;
    const int64_t key_end = p.visible_keys(p.q_len - 1).end;
    if (last_of_split) keys += std::min(key_end, blocks * block_kv);
  }
  const int64_t heads = p.batch * p.q_heads;
  const int64_t float_bytes = static_cast<int64_t>(sizeof(float));
  return element_size(p.dtype) * (heads * (q_rows + 2 * keys) * p.head_dim + p.query_elements()) +
         float_bytes * (p.query_rows() + 2 * heads * carried_rows * (p.head_dim + 2));
}

void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  const Problem& p = at.problem;
  auto* partial_o = static_cast<float*>(workspace);
  float* maximum = partial_o + p.query_rows() * variant_for(p).head_dim;
  const int64_t splits_of_head = splits(at);
  const Arguments arguments{
      .tensors = forward_tensors(in, out),
      .heads = static_cast<int>(p.q_heads),
      .heads_per_kv_head = static_cast<int>(p.heads_per_kv_head()),
      .q_len = static_cast<int>(p.q_len),
      .kv_len = static_cast<int>(p.kv_len),
      .head_dim = static_cast<int>(p.head_dim),
      .diagonal = static_cast<int>(diagonal(p)),
      .splits = static_cast<int>(splits_of_head),
      .scale_log2 = static_cast<float>(p.softmax_scale() * std::numbers::log2e),
      .partial_o = partial_o,
      .maximum = maximum,
      .sum = maximum + p.query_rows(),
  };
  launch_kernel(kernel_for(p), p.batch * p.q_heads * splits_of_head, arguments, stream);
}

}  // namespace
}  // namespace flashbench::kernels::fa1

namespace flashbench::kernels {

extern const AttentionKernel kFa1Forward{.name = "fa1_forward",
                                         .family = "fa1",
                                         .device = DeviceKind::cuda,
                                         .pass = Pass::forward,
                                         .needs_aligned_rows = true,
                                         .why_unsupported = fa1::why_unsupported,
                                         .variant = fa1::variant,
                                         .workspace_bytes = fa1::workspace_bytes,
                                         .requested_bytes = fa1::requested_bytes,
                                         .facts = fa1::facts,
                                         .launch = fa1::launch};

}  // namespace flashbench::kernels
