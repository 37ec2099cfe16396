// Attention of a decoding kernel for Hopper: each warp computes all rows over its tiles of keys,
// with the online softmax in registers. Bytes of K and V become fp16 between shared memory and the
// products.
#pragma once

#include <cstdint>

#include "kernels/mma/tile_product.cuh"
#include "kernels/ptx/cp_async.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/mma.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/decode_arguments.cuh"
#include "kernels/sm90/decode_loads.cuh"
#include "kernels/sm90/decode_portions.cuh"
#include "kernels/sm90/decode_shapes.cuh"
#include "kernels/sm90/decode_work.cuh"

namespace flashbench::kernels::sm90 {

// The maximum in the exponents may lag behind the true maximum by up to this power of two before O
// and the sums are scaled. P then stays far below the largest fp16.
inline constexpr float kDecodeRescaleThreshold = 8;

template <typename T, DecodeConfig kConfig, typename Delay>
struct DecodeAttention : DecodeShapes<T, kConfig> {
  using Shapes = DecodeShapes<T, kConfig>;
  using Shapes::kRowTiles, Shapes::kKeys, Shapes::kStages, Shapes::kKeyTiles, Shapes::kDimSteps,
      Shapes::kValueTiles, Shapes::kValueSteps, Shapes::kInfinity, Shapes::kKeepQ,
      Shapes::kByteCache;
  using typename Shapes::QTile, typename Shapes::KTile, typename Shapes::VTile,
      typename Shapes::Product, typename Shapes::Shared;
  using Request = DecodeRequest;
  using Rows = typename DecodeWork<kConfig>::Rows;
  using Loads = DecodeLoads<T, kConfig>;

  // P is multiplied by 2 to this power, so that fp16 holds small ones beside Q of bf16 as well. It
  // is then at most 2^15.
  static constexpr float kPExponent = kByteCache ? 7 : 0;

  // The online softmax state of a thread's rows; `sum` covers only this thread's keys.
  struct State {
    float o[kRowTiles][kValueTiles][4] = {};
    float maximum[kRowTiles][2], sum[kRowTiles][2] = {};

    __device__ State() {
      for (auto& two : maximum) two[0] = two[1] = -kInfinity;
    }
  };

  // The base of the exponents: the maximum, or 0 for a row that has seen no key, whose P must be 0
  // and not NaN.
  static __device__ float base_of(float maximum) { return maximum == -kInfinity ? 0 : maximum; }

  // Computes the rows over this warp's tiles of the keys.
  static __device__ void attend(const DecodeArguments& a, Shared& shared, const Request& request,
                                const Rows& rows, typename Loads::InFlight& loads, State& state) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t ring = ptx::shared_address(&shared.warps[warp].ring);
    const int end = loads.range.end, step = loads.range.step;
    // Every row sees the keys between these two.
    const int first_seen_by_all = request.first_key(rows.query(a, rows.count - 1));
    const int end_seen_by_all = request.end_key(rows.query(a, 0));

    ptx::cp_async_wait_group<2 * kStages>();  // for Q, whose group is the first
    if constexpr (kByteCache) Loads::scale_q(loads, shared);
    Delay::before_barrier();
    __syncthreads();
    const uint32_t q_lane =
        ptx::shared_address(loads.q) +
        QTile::chunk_offset(mma::row_major_row(lane), mma::row_major_chunk(lane));
    uint32_t kept_q[kKeepQ ? kDimSteps : 1][kRowTiles][4];
    if constexpr (kKeepQ) {
#pragma unroll
      for (int step = 0; step < kDimSteps; ++step) load_q_step(kept_q[step], q_lane, step);
    }
    const uint32_t k_lane =
        ring + KTile::chunk_offset(mma::column_major_row(lane), mma::column_major_chunk(lane));
    const uint32_t v_lane =
        ring + Loads::kV +
        VTile::chunk_offset(mma::row_major_row(lane), mma::row_major_chunk(lane));

    // The copies of a tile of K, and of V, are a group each. All but the last 2 kStages - 1 are
    // complete when a tile is needed.
    uint32_t stage = 0;
    for (int key = loads.key; key < end; key += step) {
      float s[kRowTiles][kKeyTiles][4];
      uint32_t p[kRowTiles][kKeyTiles / 2][4];
      Delay::before_barrier();
      ptx::cp_async_wait_group<2 * kStages - 1>();
      __syncwarp();
      multiply_qk(s, kept_q, q_lane, k_lane + stage);
      __syncwarp();
      loads.load_k(a, ring, stage, key + kStages * step);

#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        float scale[2] = {a.scale_log2, a.scale_log2};
        if constexpr (kByteCache) {
          scale[0] = shared.score_scale[r * 16 + lane / 4];
          scale[1] = shared.score_scale[r * 16 + 8 + lane / 4];
        }
#pragma unroll
        for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) s[r][t][i] = __fmul_rn(s[r][t][i], scale[i / 2]);
        }
      }
      if (key < first_seen_by_all || key + kKeys > end_seen_by_all) mask(a, request, rows, key, s);
      softmax(s, state, p);

      Delay::before_barrier();
      ptx::cp_async_wait_group<2 * kStages - 1>();
      __syncwarp();
      if constexpr (kByteCache) {
        multiply_pv_of_bytes(state.o, p, v_lane + Loads::v_stage(stage));
      } else {
        multiply_pv(state.o, p, v_lane + Loads::v_stage(stage));
      }
      __syncwarp();
      loads.load_v(a, ring, stage, key + kStages * step);
      stage = stage + KTile::kBytes == Loads::kV ? 0 : stage + KTile::kBytes;
    }
  }

  // S = Q K^T. `kept_q` holds Q if kKeepQ, else it is read from shared memory at `q_lane`. With few
  // rows there are few products that do not wait for each other, so that the columns of head_dim go
  // to two sums in turn.
  static constexpr int kSums = kRowTiles == 1 ? 2 : 1;
  static __device__ void multiply_qk(float (&s)[kRowTiles][kKeyTiles][4],
                                     uint32_t (&kept_q)[kKeepQ ? kDimSteps : 1][kRowTiles][4],
                                     uint32_t q_lane, uint32_t k_lane) {
    float sums[kSums][kRowTiles][kKeyTiles][4] = {};
    constexpr int kLoadSteps = kByteCache ? 2 : 1;  // of head_dim, that a load of 16 keys has
#pragma unroll
    for (int first = 0; first < kDimSteps; first += kLoadSteps) {
      uint32_t q[kLoadSteps][kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kLoadSteps; ++i) {
        if constexpr (!kKeepQ) load_q_step(q[i], q_lane, first + i);
      }
#pragma unroll
      for (int pair = 0; pair < kKeyTiles / 2; ++pair) {
        uint32_t loaded[4];
        ptx::ldmatrix_x4(
            loaded, KTile::column_step(k_lane, first / kLoadSteps) + pair * 16 * KTile::kRowBytes);
#pragma unroll
        for (int i = 0; i < kLoadSteps; ++i) {
          uint32_t k[4];
          if constexpr (kByteCache) {
            // Four columns of a key of the first eight, and of one of the others.
            ptx::cvt_rn_f16x2_e4m3x4(loaded[i], k[0], k[1]);
            ptx::cvt_rn_f16x2_e4m3x4(loaded[2 + i], k[2], k[3]);
          } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) k[j] = loaded[j];
          }
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) {
            const auto& a = kKeepQ ? kept_q[kKeepQ ? first + i : 0][r] : q[i][r];
            auto& sum = sums[(first + i) % kSums][r];
            ptx::mma_m16n8k16<Product>(sum[2 * pair], a, k[0], k[1]);
            ptx::mma_m16n8k16<Product>(sum[2 * pair + 1], a, k[2], k[3]);
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[r][t][i] = kSums == 1 ? sums[0][r][t][i] : sums[0][r][t][i] + sums[kSums - 1][r][t][i];
        }
      }
    }
  }
  static __device__ void load_q_step(uint32_t (&q)[kRowTiles][4], uint32_t q_lane, int step) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      ptx::ldmatrix_x4(q[r], QTile::column_step(q_lane, step) + r * 16 * QTile::kRowBytes);
    }
  }

  // O += P V.
  static __device__ void multiply_pv(float (&o)[kRowTiles][kValueTiles][4],
                                     const uint32_t (&p)[kRowTiles][kKeyTiles / 2][4],
                                     uint32_t v_lane) {
#pragma unroll
    for (int step = 0; step < kKeyTiles / 2; ++step) {
#pragma unroll
      for (int pair = 0; pair < kValueSteps; ++pair) {
        uint32_t v[4];
        ptx::ldmatrix_x4_trans(v, VTile::column_step(v_lane, pair) + step * 16 * VTile::kRowBytes);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          ptx::mma_m16n8k16<Product>(o[r][2 * pair], p[r][step], v[0], v[1]);
          ptx::mma_m16n8k16<Product>(o[r][2 * pair + 1], p[r][step], v[2], v[3]);
        }
      }
    }
  }
  // The same of bytes. Of each 16 columns, one tile of O has the even ones, and the next the odd
  // ones: ldmatrix transposes 16 bits, so that a lane gets two columns of two keys.
  static __device__ void multiply_pv_of_bytes(float (&o)[kRowTiles][kValueTiles][4],
                                              const uint32_t (&p)[kRowTiles][kKeyTiles / 2][4],
                                              uint32_t v_lane) {
#pragma unroll
    for (int step = 0; step < kKeyTiles / 2; ++step) {
#pragma unroll
      for (int four = 0; four < kValueTiles / 4; ++four) {
        uint32_t loaded[4], even[4], odd[4];
        ptx::ldmatrix_x4_trans(loaded,
                               VTile::column_step(v_lane, four) + step * 16 * VTile::kRowBytes);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          ptx::cvt_rn_f16x2_e4m3x4(__byte_perm(loaded[i], 0, 0x3120), even[i], odd[i]);
        }
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          ptx::mma_m16n8k16<Product>(o[r][4 * four], p[r][step], even[0], even[1]);
          ptx::mma_m16n8k16<Product>(o[r][4 * four + 1], p[r][step], odd[0], odd[1]);
          ptx::mma_m16n8k16<Product>(o[r][4 * four + 2], p[r][step], even[2], even[3]);
          ptx::mma_m16n8k16<Product>(o[r][4 * four + 3], p[r][step], odd[2], odd[3]);
        }
      }
    }
  }

  // Sets the scores of keys that a row does not see to -infinity.
  static __device__ void mask(const DecodeArguments& a, const Request& request, const Rows& rows,
                              int first_key, float (&s)[kRowTiles][kKeyTiles][4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = r * 16 + half * 8 + lane / 4;
        const int query = rows.query(a, row), own_key = first_key + lane % 4 * 2;
        const int first = request.first_key(query) - own_key;
        const int end = request.end_key(query) - own_key;
#pragma unroll
        for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if (t * 8 + i < first || t * 8 + i >= end) s[r][t][2 * half + i] = -kInfinity;
          }
        }
      }
    }
  }

  // Turns S into P, and scales the sums and O if a maximum has grown too much.
  static __device__ void softmax(float (&s)[kRowTiles][kKeyTiles][4], State& state,
                                 uint32_t (&p)[kRowTiles][kKeyTiles / 2][4]) {
    float maximum[kRowTiles][2];
    bool grown = false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float m = -kInfinity;
#pragma unroll
        for (int t = 0; t < kKeyTiles; ++t) {
          m = fmaxf(m, fmaxf(s[r][t][2 * half], s[r][t][2 * half + 1]));
        }
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
        maximum[r][half] = fmaxf(state.maximum[r][half], m);
        grown |= maximum[r][half] > state.maximum[r][half] + kDecodeRescaleThreshold;
      }
    }
    if (__any_sync(~0u, grown)) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          factor[half] = ptx::ex2_approx_ftz(state.maximum[r][half] - base_of(maximum[r][half]));
          state.maximum[r][half] = maximum[r][half];
          state.sum[r][half] *= factor[half];
        }
#pragma unroll
        for (int t = 0; t < kValueTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) state.o[r][t][i] *= factor[i / 2];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const float base[2] = {base_of(state.maximum[r][0]) - kPExponent,
                             base_of(state.maximum[r][1]) - kPExponent};
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float low = ptx::ex2_approx_ftz(s[r][t][2 * half] - base[half]);
          const float high = ptx::ex2_approx_ftz(s[r][t][2 * half + 1] - base[half]);
          state.sum[r][half] += low + high;
          p[r][t / 2][t % 2 * 2 + half] = ptx::cvt_rn_x2<Product>(low, high);
        }
      }
    }
  }
};

}  // namespace flashbench::kernels::sm90
