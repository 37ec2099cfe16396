// Attention forward on Hopper (sm_90a) for few queries and many keys, as in decoding, where the
// time is that of reading K and V once.
//
// A unit is what reads the same K and V: the queries of all heads of a group, packed into rows. A
// thread block takes a unit, or a part of its keys. Each warp has tiles of keys of its own, with a
// ring in shared memory that nobody else touches, and computes all rows for them: there is no
// barrier in the loop. At the end the partial results are merged, in a fixed order: those of the
// warps in shared memory; those of the thread blocks of a cluster, which send each other the
// columns that the other merges; and those of several clusters in global memory, by the cluster
// that arrives last.
//
// Where lengths are equal, the host splits all units alike (Splits). Else thread blocks find their
// keys from the lengths in device memory (Portions), and merge in global memory alone.
#pragma once

#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "kernels/common/strides.h"
#include "kernels/mma/shared_tile.h"
#include "kernels/mma/tile_product.cuh"
#include "kernels/ptx/atom.h"
#include "kernels/ptx/cluster.h"
#include "kernels/ptx/cp_async.h"
#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ex2.h"
#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/mma.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/decode_arguments.cuh"
#include "kernels/sm90/decode_keys.cuh"
#include "kernels/sm90/decode_portions.cuh"
#include "kernels/sm90/decode_splits.h"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// The maximum in the exponents may lag behind the true maximum by up to this power of two before O
// and the sums are scaled. P then stays far below the largest fp16.
inline constexpr float kDecodeRescaleThreshold = 8;

template <typename T, DecodeConfig kConfig, typename Delay = NoDelay>
struct Decode {
  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kValueDim = kConfig.value_dim;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kKeys = kConfig.keys;
  static constexpr int kWarps = kConfig.warps;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kAtOnce = kConfig.at_once;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlockQ = 16 * kRowTiles;
  static constexpr int kBlockKv = kWarps * kKeys;
  static constexpr int kKeyTiles = kKeys / 8;
  static constexpr int kDimSteps = kHeadDim / 16;
  static constexpr int kValueTiles = kValueDim / 8;
  static constexpr int kValueSteps = kValueDim / 16;
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  static constexpr bool kTakesPortions = kConfig.batch == DecodeBatch::portions;

  // Q stays in registers where there is room beside S and O.
  static constexpr bool kKeepQ = kRowTiles * (kDimSteps + kKeyTiles + kValueTiles) * 4 <= 160;

  using QTile = mma::SharedTile<kBlockQ, kHeadDim>;
  using KTile = mma::SharedTile<kKeys, kHeadDim>;
  using VTile = mma::SharedTile<kKeys, kValueDim>;
  using Keys = std::conditional_t<kConfig.batch == DecodeBatch::equal, EqualKeys<T>,
                                  PagedKeys<T, kKeys, kStages>>;

  // Rows of O in shared memory. The padding spares bank conflicts to stores of accumulators.
  static constexpr int kORow = kValueDim + 8;

  // Results are merged in shares: a row's four columns for each lane of a warp.
  static constexpr int kColumns = kValueDim / 4;
  static constexpr int kShares = kBlockQ * kColumns / 32;
  // Every thread block of a cluster has room for as many shares.
  static constexpr int kReceivedShares =
      (kShares + kLargestCluster - 1) / kLargestCluster * kLargestCluster;

  struct Ring {
    char k[kStages][KTile::kBytes];
    char v[kStages][VTile::kBytes];
  };
  // A warp's ring, and in the end its O. Where there is room for both, the next keys are loaded
  // while O is merged.
  union alignas(128) RingOrO {
    Ring ring;
    float o[kBlockQ][kORow];
  };
  struct alignas(128) RingAndO {
    Ring ring;
    float o[kBlockQ][kORow];
  };
  static constexpr bool kLoadsAhead =
      kTakesPortions && kAtOnce * (kWarps * sizeof(RingAndO) + QTile::kBytes + 4096) <= size_t{227}
                                                                                            << 10;
  using WarpMemory = std::conditional_t<kLoadsAhead, RingAndO, RingOrO>;
  struct Shared {
    alignas(128) char q[QTile::kBytes];
    WarpMemory warps[kWarps];
    float maximum[kWarps][kBlockQ], sum[kWarps][kBlockQ];
    // What the thread blocks of a cluster have sent: of each of them, this one's shares.
    float4 received_o[kTakesPortions ? 1 : kReceivedShares * 32];
    float2 received_sums[kTakesPortions ? 1 : kReceivedShares * 32];
    uint64_t received;
    bool is_last;
    // Of portions: where each warp is, and the piece that it computes and the next one.
    struct Way {
      DecodeWalk walk;
      DecodePiece pieces[2];
    } ways[kTakesPortions ? kWarps : 1];
  };

  // What a thread block computes. Thread blocks that read the same keys of all heads are
  // neighbours, so that they read neighbouring memory at about the same time.
  struct Place {
    int kv_head, row_block, cluster, rank;

    __device__ explicit Place(const DecodeArguments& a) : cluster(0), rank(0) {
      if constexpr (kTakesPortions) {
        kv_head = static_cast<int>(blockIdx.y);
        row_block = static_cast<int>(blockIdx.x);
        return;
      }
      cluster = ptx::clusterid_z();
      rank = ptx::cluster_ctarank();
      kv_head = static_cast<int>(blockIdx.x);
      row_block = 0;
      if (a.row_blocks == 1) return;
      row_block = kv_head % a.row_blocks;
      kv_head /= a.row_blocks;
    }
    // The number of the unit; of the thread block among those of a portion.
    __device__ int unit() const { return static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x); }
  };
  using Request = DecodeRequest;

  // A block of a unit's rows. Row i is of query i / group, and of head i % group of the group.
  struct Rows {
    int first, count;

    __device__ Rows(const DecodeArguments& a, const Place& place, const Request& request)
        : first(place.row_block * kBlockQ), count(min(kBlockQ, a.group * request.q_len - first)) {}
    // row / group. Exact for fewer than 2^20 rows: a quotient is half a row away from an integer.
    __device__ int query(const DecodeArguments& a, int row) const {
      return static_cast<int>((static_cast<float>(first + row) + 0.5f) * a.inverse_group);
    }
  };
  // Where one of them lies in Q and O.
  struct Row {
    int query, head;

    __device__ Row(const DecodeArguments& a, const Place& place, const Rows& rows, int row)
        : query(rows.query(a, row)),
          head(place.kv_head * a.group + rows.first + row - query * a.group) {}
    __device__ int64_t offset(const Request& request, const Strides& strides) const {
      return request.number * strides.batch + head * strides.head +
             (request.first_q + query) * strides.row;
    }
  };

  // The keys that the warps of a thread block take tiles of in turn: from its first one on, a warp
  // has every step-th.
  struct KeyRange {
    int first, step, end;
  };

  // ---- Loads

  // Every thread loads a part of Q. Rows that do not exist are zeros.
  static constexpr int kChunks = kHeadDim / 8;  // of 16 bytes
  static constexpr int kThreadChunks = (kBlockQ * kChunks + kThreads - 1) / kThreads;
  static __device__ void load_q(const DecodeArguments& a, const Place& place,
                                const Request& request, const Rows& rows,
                                uint4 (&q)[kThreadChunks]) {
#pragma unroll
    for (int i = 0; i < kThreadChunks; ++i) {
      const int at = i * kThreads + static_cast<int>(threadIdx.x);
      const int row = at / kChunks, chunk = at % kChunks;
      q[i] = {0, 0, 0, 0};
      if (row < rows.count && chunk * 8 < a.head_dim) {
        const Row here(a, place, rows, row);
        const T* from = static_cast<const T*>(a.tensors.q) +
                        here.offset(request, a.tensors.q_strides) + chunk * 8;
        q[i] = __ldg(reinterpret_cast<const uint4*>(from));
      }
    }
  }
  static __device__ void store_q(const uint4 (&q)[kThreadChunks], char* tile) {
#pragma unroll
    for (int i = 0; i < kThreadChunks; ++i) {
      const int at = i * kThreads + static_cast<int>(threadIdx.x);
      if (at < kBlockQ * kChunks) {
        *reinterpret_cast<uint4*>(tile + QTile::offset(at / kChunks, at % kChunks)) = q[i];
      }
    }
  }

  // A warp loads a tile of K or V. Keys from `end` on are zeros, whatever memory holds there.
  template <typename Tile, typename TileRows>
  static __device__ void load_keys(uint32_t tile, const TileRows& rows, int first_key, int end,
                                   int columns) {
    constexpr int kRowsAtOnce = 32 / Tile::kRowChunks;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int chunk = lane % Tile::kRowChunks, lane_row = lane / Tile::kRowChunks;
#pragma unroll
    for (int i = 0; i < kKeys; i += kRowsAtOnce) {
      const int row = i + lane_row, key = first_key + row;
      const T* from = rows.row(key) + chunk * 8;
      const uint32_t to = tile + Tile::chunk_offset(row, chunk);
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        const int column = panel * Tile::kPanelColumns;
        const bool inside = key < end && column + chunk * 8 < columns;
        ptx::cp_async_16(to + panel * Tile::kPanelBytes, from + column, inside ? 16 : 0);
      }
    }
  }

  // The keys of a unit in memory. No page is looked up for keys from `end` on.
  static __device__ Keys keys_of(const DecodeArguments& a, const Place& place,
                                 const Request& request, int end) {
    const auto of_head = [&](const void* tensor, const Strides& strides) {
      return static_cast<const T*>(tensor) + place.kv_head * strides.head;
    };
    const auto of_request = [&](const void* tensor, const Strides& strides) {
      return of_head(tensor, strides) + request.number * strides.batch +
             request.first_k * strides.row;
    };
    if constexpr (kConfig.batch == DecodeBatch::equal) {
      const auto rows = [&](const void* tensor, const Strides& strides) {
        return KeyRows<T>{of_request(tensor, strides),
                          static_cast<unsigned>(strides.row * sizeof(T))};
      };
      return {rows(a.tensors.k, a.tensors.k_strides), rows(a.tensors.v, a.tensors.v_strides)};
    } else {
      const bool paged = a.block_table != nullptr;
      return {paged ? of_head(a.tensors.k, a.tensors.k_strides)
                    : of_request(a.tensors.k, a.tensors.k_strides),
              paged ? of_head(a.tensors.v, a.tensors.v_strides)
                    : of_request(a.tensors.v, a.tensors.v_strides),
              paged ? a.block_table + request.number * a.table_stride : nullptr, end};
    }
  }

  // ---- The loop

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
  static __device__ float base_of(float maximum) {
    return maximum == -kInfinity ? 0 : maximum;
  }

  // S = Q K^T. `kept_q` holds Q if kKeepQ, else it is read from shared memory at `q_lane`. With few
  // rows there are few products that do not wait for each other, so that the columns of head_dim go
  // to two sums in turn.
  static constexpr int kSums = kRowTiles == 1 ? 2 : 1;
  static __device__ void multiply_qk(float (&s)[kRowTiles][kKeyTiles][4],
                                     uint32_t (&kept_q)[kKeepQ ? kDimSteps : 1][kRowTiles][4],
                                     uint32_t q_lane, uint32_t k_lane) {
    float sums[kSums][kRowTiles][kKeyTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kDimSteps; ++step) {
      uint32_t q[kRowTiles][4];
      if constexpr (!kKeepQ) load_q_step(q, q_lane, step);
#pragma unroll
      for (int pair = 0; pair < kKeyTiles / 2; ++pair) {
        uint32_t k[4];
        ptx::ldmatrix_x4(k, KTile::column_step(k_lane, step) + pair * 16 * KTile::kRowBytes);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          const auto& a = kKeepQ ? kept_q[kKeepQ ? step : 0][r] : q[r];
          auto& sum = sums[step % kSums][r];
          ptx::mma_m16n8k16<T>(sum[2 * pair], a, k[0], k[1]);
          ptx::mma_m16n8k16<T>(sum[2 * pair + 1], a, k[2], k[3]);
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
          ptx::mma_m16n8k16<T>(o[r][2 * pair], p[r][step], v[0], v[1]);
          ptx::mma_m16n8k16<T>(o[r][2 * pair + 1], p[r][step], v[2], v[3]);
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
      const float base[2] = {base_of(state.maximum[r][0]), base_of(state.maximum[r][1])};
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float low = ptx::ex2_approx_ftz(s[r][t][2 * half] - base[half]);
          const float high = ptx::ex2_approx_ftz(s[r][t][2 * half + 1] - base[half]);
          state.sum[r][half] += low + high;
          p[r][t / 2][t % 2 * 2 + half] = ptx::cvt_rn_x2<T>(low, high);
        }
      }
    }
  }

  // Where V's part of a warp's ring begins, and the offset in it of the stage that is at this
  // offset in K's.
  static constexpr uint32_t kV = kStages * KTile::kBytes;
  static __device__ uint32_t v_stage(uint32_t stage) {
    return kHeadDim == kValueDim ? stage : stage / KTile::kBytes * VTile::kBytes;
  }

  // Loads that are under way: Q's to registers, those of keys to the warp's ring.
  struct Loads {
    uint4 q[kThreadChunks];
    Keys keys;
    int key;  // of the warp's first tile
    KeyRange range;

    // A group of copies each, of nothing behind the end.
    __device__ void load_k(const DecodeArguments& a, uint32_t ring, uint32_t stage, int key) {
      if (key < range.end) {
        keys.turn_to(a, key, range.step);
        load_keys<KTile>(ring + stage, keys.k(a, key), key, range.end, a.head_dim);
      }
      ptx::cp_async_commit_group();
    }
    __device__ void load_v(const DecodeArguments& a, uint32_t ring, uint32_t stage, int key) {
      if (key < range.end) {
        load_keys<VTile>(ring + kV + v_stage(stage), keys.v(a, key), key, range.end, a.value_dim);
      }
      ptx::cp_async_commit_group();
    }
  };

  // Begins to load Q and this warp's first tiles of a range of keys. Q comes first, because it
  // would wait for all of the ring otherwise.
  static __device__ Loads begin(const DecodeArguments& a, Shared& shared, const Place& place,
                                const Request& request, const Rows& rows, const KeyRange& range) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const uint32_t ring = ptx::shared_address(&shared.warps[warp].ring);
    Loads loads{.keys = keys_of(a, place, request, range.end),
                .key = range.first + warp * kKeys,
                .range = range};
    loads.keys.look_up_first(a, loads.key, range.step);
    load_q(a, place, request, rows, loads.q);
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) {
      loads.load_k(a, ring, i * KTile::kBytes, loads.key + i * range.step);
      loads.load_v(a, ring, i * KTile::kBytes, loads.key + i * range.step);
    }
    return loads;
  }

  // Computes the rows over this warp's tiles of the keys.
  static __device__ void attend(const DecodeArguments& a, Shared& shared, const Request& request,
                                const Rows& rows, Loads& loads, State& state) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t ring = ptx::shared_address(&shared.warps[warp].ring);
    const int end = loads.range.end, step = loads.range.step;
    // Every row sees the keys between these two.
    const int first_seen_by_all = request.first_key(rows.query(a, rows.count - 1));
    const int end_seen_by_all = request.end_key(rows.query(a, 0));

    store_q(loads.q, shared.q);
    Delay::before_barrier();
    __syncthreads();
    const uint32_t q_lane =
        ptx::shared_address(shared.q) +
        QTile::chunk_offset(mma::row_major_row(lane), mma::row_major_chunk(lane));
    uint32_t kept_q[kKeepQ ? kDimSteps : 1][kRowTiles][4];
    if constexpr (kKeepQ) {
#pragma unroll
      for (int step = 0; step < kDimSteps; ++step) load_q_step(kept_q[step], q_lane, step);
    }
    const uint32_t k_lane =
        ring + KTile::chunk_offset(mma::column_major_row(lane), mma::column_major_chunk(lane));
    const uint32_t v_lane =
        ring + kV + VTile::chunk_offset(mma::row_major_row(lane), mma::row_major_chunk(lane));

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
#pragma unroll
        for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
          for (float& x : s[r][t]) x = __fmul_rn(x, a.scale_log2);
        }
      }
      if (key < first_seen_by_all || key + kKeys > end_seen_by_all) mask(a, request, rows, key, s);
      softmax(s, state, p);

      Delay::before_barrier();
      ptx::cp_async_wait_group<2 * kStages - 1>();
      __syncwarp();
      multiply_pv(state.o, p, v_lane + v_stage(stage));
      __syncwarp();
      loads.load_v(a, ring, stage, key + kStages * step);
      stage = stage + KTile::kBytes == kV ? 0 : stage + KTile::kBytes;
    }
  }

  // ---- The merge

  // Four columns of a row of O, relative to `maximum`, and the row's sum.
  struct Part {
    float maximum, sum;
    float4 o;

    __device__ void add(const Part& part, float weight) {
      sum += weight * part.sum;
      o.x += weight * part.o.x;
      o.y += weight * part.o.y;
      o.z += weight * part.o.z;
      o.w += weight * part.o.w;
    }
  };

  // Merges `count` parts of a row in order. read(i) reads part i. Parts are read several at a time.
  template <int kAtATime, typename Read>
  static __device__ Part merge(int count, const Read& read) {
    Part merged{-kInfinity, 0, {0, 0, 0, 0}};
    for (int first = 0; first < count; first += kAtATime) {
      Part parts[kAtATime];
      float maximum = merged.maximum;
#pragma unroll
      for (int i = 0; i < kAtATime; ++i) {
        parts[i] = first + i < count ? read(first + i) : Part{-kInfinity, 0, {0, 0, 0, 0}};
      }
#pragma unroll
      for (const Part& part : parts) maximum = fmaxf(maximum, part.maximum);
      const float base = base_of(maximum);
      Part sum{maximum, 0, {0, 0, 0, 0}};
      sum.add(merged, ptx::ex2_approx_ftz(merged.maximum - base));
#pragma unroll
      for (const Part& part : parts) sum.add(part, ptx::ex2_approx_ftz(part.maximum - base));
      merged = sum;
    }
    return merged;
  }

  // The shares of a block's rows. Those of thread block `rank` of a cluster are `rank` and every
  // cluster_size-th after it; cluster_size is a power of two.
  struct Shares {
    int all, cluster_size, shift;

    __device__ Shares(const DecodeArguments& a, const Rows& rows)
        : all((rows.count * kColumns + 31) / 32), cluster_size(a.cluster_size) {
      shift = __ffs(cluster_size) - 1;
    }
    __device__ int owner(int share) const { return share & (cluster_size - 1); }
    __device__ int number_at_owner(int share) const { return share >> shift; }
    // How many a thread block has at most, and how many this one has.
    __device__ int most() const { return (all + cluster_size - 1) >> shift; }
    __device__ int of(int rank) const { return (all - rank + cluster_size - 1) >> shift; }
    __device__ int own(int number, int rank) const { return (number << shift) + rank; }
  };
  // The row and the first column of this lane's part of a share.
  static __device__ int row_of(int share) {
    return (share * 32 + static_cast<int>(threadIdx.x) % 32) / kColumns;
  }
  static __device__ int column_of(int share) {
    return (share * 32 + static_cast<int>(threadIdx.x) % 32) % kColumns * 4;
  }

  static __device__ void store_state(const Rows& rows, const State& state, Shared& shared) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();  // all lanes have read the last tile
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = r * 16 + half * 8 + lane / 4;
        if (r * 16 + half * 8 >= rows.count) continue;
        float sum = state.sum[r][half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (lane % 4 == 0) {
          shared.maximum[warp][row] = state.maximum[r][half];
          shared.sum[warp][row] = sum;
        }
        float* o = &shared.warps[warp].o[row][lane % 4 * 2];
#pragma unroll
        for (int t = 0; t < kValueTiles; ++t) {
          *reinterpret_cast<float2*>(o + t * 8) = {state.o[r][t][2 * half],
                                                   state.o[r][t][2 * half + 1]};
        }
      }
    }
  }

  static __device__ Part merge_warps(const Shared& shared, int row, int column) {
    return merge<kWarps>(kWarps, [&](int i) {
      const float4 o = *reinterpret_cast<const float4*>(&shared.warps[i].o[row][column]);
      return Part{shared.maximum[i][row], shared.sum[i][row], o};
    });
  }

  // The place in the memory of its owner for what thread block `rank` sends of a share.
  static __device__ int received_at(const Shares& shares, int number_at_owner, int rank) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return (rank * shares.most() + number_at_owner) * 32 + lane;
  }

  // Makes this thread block ready to receive; the cluster's barrier tells the others.
  static __device__ void expect_parts(const Shares& shares, int rank, Shared& shared) {
    constexpr int kBytes = 32 * (sizeof(float4) + sizeof(float2));
    if (threadIdx.x == 0) {
      const uint32_t received = ptx::shared_address(&shared.received);
      ptx::mbarrier_init(received, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(received, shares.of(rank) * shares.cluster_size * kBytes);
    }
    ptx::barrier_cluster_arrive_relaxed();
  }

  // Sends this lane's part to the owner of the share.
  static __device__ void send(const Shares& shares, int share, int rank, const Part& part,
                              Shared& shared) {
    const int owner = shares.owner(share);
    const int at = received_at(shares, shares.number_at_owner(share), rank);
    const uint32_t barrier = ptx::mapa(ptx::shared_address(&shared.received), owner);
    ptx::st_async_v4(ptx::mapa(ptx::shared_address(&shared.received_o[at]), owner), part.o,
                     barrier);
    ptx::st_async_v2(ptx::mapa(ptx::shared_address(&shared.received_sums[at]), owner),
                     {part.maximum, part.sum}, barrier);
  }

  static __device__ Part merge_cluster(const Shares& shares, int number, const Shared& shared) {
    return merge<kLargestCluster>(shares.cluster_size, [&](int i) {
      const int at = received_at(shares, number, i);
      const float2 sums = shared.received_sums[at];
      return Part{sums.x, sums.y, shared.received_o[at]};
    });
  }

  // Where a thread block leaves its share of a part of a unit.
  struct PartialRows {
    float* o;
    float2* sums;

    // Of a cluster's part.
    __device__ PartialRows(const DecodeArguments& a, const Place& place, int cluster) {
      const int64_t part = int64_t{place.unit()} * a.clusters + cluster;
      o = a.partial_o + part * kBlockQ * a.value_dim;
      sums = reinterpret_cast<float2*>(a.partial_sums) +
             (part * a.cluster_size + place.rank) * kBlockQ;
    }
    // Of part `number` of a unit in portions. A portion begins with part of a unit, and ends with
    // the first part of another.
    __device__ PartialRows(const DecodeArguments& a, const Place& place, const DecodeParts& parts,
                           int number) {
      const int64_t portion = parts.first_portion + number;
      const int64_t slot = portion * a.part_slots + (number == 0 ? a.part_slots - 1 : 0);
      const int64_t row = (slot * (gridDim.x * gridDim.y) + place.unit()) * a.part_rows;
      o = a.partial_o + row * a.value_dim;
      sums = reinterpret_cast<float2*>(a.partial_sums) + row;
    }

    __device__ void write(const DecodeArguments& a, int row, int column, const Part& part) const {
      *reinterpret_cast<float4*>(o + row * a.value_dim + column) = part.o;
      // Each writes its own copy of the sums, or the same.
      sums[row] = {part.maximum, part.sum};
    }
    __device__ Part read(const DecodeArguments& a, int row, int column) const {
      const float2 both = __ldcg(sums + row);
      const float4 four = __ldcg(reinterpret_cast<const float4*>(o + row * a.value_dim + column));
      return Part{both.x, both.y, four};
    }
  };

  static __device__ void store(const DecodeArguments& a, const Place& place, const Request& request,
                               const Rows& rows, int row, int column, const Part& part) {
    const float inverse = part.sum == 0 ? 0 : 1 / part.sum;
    const uint2 packed{ptx::cvt_rn_x2<T>(part.o.x * inverse, part.o.y * inverse),
                       ptx::cvt_rn_x2<T>(part.o.z * inverse, part.o.w * inverse)};
    const Row here(a, place, rows, row);
    T* o = static_cast<T*>(a.tensors.o) + here.offset(request, a.tensors.o_strides) + column;
    *reinterpret_cast<uint2*>(o) = packed;
    if (column == 0) {
      a.tensors.logsumexp[logsumexp_index(a, request, here)] =
          (part.maximum + log2f(part.sum)) * std::numbers::ln2_v<float>;
    }
  }
  static __device__ int64_t logsumexp_index(const DecodeArguments& a, const Request& request,
                                            const Row& here) {
    if constexpr (kTakesPortions) {
      return request.number * a.logsumexp_batch + here.head * a.logsumexp_head + request.first_q +
             here.query;
    }
    const int64_t head = int64_t{request.number} * a.kv_heads * a.group + here.head;
    return head * a.q_len + here.query;
  }

  // Returns whether this thread block is the last of `count` that merge the same columns of a unit.
  // What the others have written is then visible. The counter starts at UINT_MAX, or where the last
  // launch with as many left it, at count - 1.
  static __device__ bool arrive_last(unsigned* counter, int count, Shared& shared) {
    Delay::before_barrier();
    __syncthreads();
    if (threadIdx.x == 0) {
      const auto others = static_cast<unsigned>(count - 1);
      shared.is_last = ptx::atom_inc_acq_rel_gpu(counter, others) == others - 1;
      // In portions, the next launch may have more parts here.
      if (kTakesPortions && shared.is_last) *counter = ~0u;
    }
    __syncthreads();
    return shared.is_last;
  }

  // Calls body(row, column) for this lane's part of a share, if the tensors have it.
  template <typename Body>
  static __device__ void in_share(const DecodeArguments& a, const Rows& rows, int share,
                                  const Body& body) {
    const int row = row_of(share), column = column_of(share);
    if (row < rows.count && column < a.value_dim) body(row, column);
  }

  // Stores a part that all splits of the cluster have added to, or leaves it to the last cluster.
  static __device__ void finish(const DecodeArguments& a, const Place& place,
                                const Request& request, const Rows& rows, int share,
                                const Part& part) {
    in_share(a, rows, share, [&](int row, int column) {
      if (a.clusters == 1) return store(a, place, request, rows, row, column, part);
      PartialRows(a, place, place.cluster).write(a, row, column, part);
    });
  }

  // Merges what the warps of all thread blocks of the unit have stored in their shared memory.
  static __device__ void merge_all(const DecodeArguments& a, Shared& shared, const Place& place,
                                   const Request& request, const Rows& rows, const Shares& shares) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const bool is_cluster = shares.cluster_size > 1;
    if (is_cluster) ptx::barrier_cluster_wait();  // all are ready to receive
#pragma unroll 1
    for (int share = warp; share < shares.all; share += kWarps) {
      const Part part = merge_warps(shared, row_of(share), column_of(share));
      if (is_cluster) {
        send(shares, share, place.rank, part, shared);
      } else {
        finish(a, place, request, rows, share, part);
      }
    }
    const int own_shares = shares.of(place.rank);
    if (is_cluster && own_shares > 0) {
      Delay::before_barrier();
      while (!ptx::mbarrier_try_wait_parity(ptx::shared_address(&shared.received), 0)) {
      }
#pragma unroll 1
      for (int i = warp; i < own_shares; i += kWarps) {
        finish(a, place, request, rows, shares.own(i, place.rank),
               merge_cluster(shares, i, shared));
      }
    }
    if (a.clusters == 1) return;
    unsigned* counter = a.last_arrived + int64_t{place.unit()} * a.cluster_size + place.rank;
    if (!arrive_last(counter, a.clusters, shared)) return;
#pragma unroll 1
    for (int i = warp; i < own_shares; i += kWarps) {
      in_share(a, rows, shares.own(i, place.rank), [&](int row, int column) {
        const Part part = merge<8>(a.clusters, [&](int cluster) {
          return PartialRows(a, place, cluster).read(a, row, column);
        });
        store(a, place, request, rows, row, column, part);
      });
    }
  }

  // The same for a part of a unit in portions.
  static __device__ void merge_parts(const DecodeArguments& a, Shared& shared, const Place& place,
                                     const Request& request, const Rows& rows,
                                     const DecodeParts& parts) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int shares = (rows.count * kColumns + 31) / 32;
#pragma unroll 1
    for (int share = warp; share < shares; share += kWarps) {
      in_share(a, rows, share, [&](int row, int column) {
        const Part part = merge_warps(shared, row, column);
        if (parts.count == 1) return store(a, place, request, rows, row, column, part);
        PartialRows(a, place, parts, parts.own).write(a, row, column, part);
      });
    }
    if (parts.count == 1) return;
    unsigned* counter =
        a.last_arrived + int64_t{parts.first_portion} * (gridDim.x * gridDim.y) + place.unit();
    if (!arrive_last(counter, parts.count, shared)) return;
    // As many reads at a time as registers allow, of one share or of several.
    if (parts.count <= 4) {
      merge_in_memory<4, 4>(a, place, request, rows, parts, shares);
    } else {
      merge_in_memory<1, 16>(a, place, request, rows, parts, shares);
    }
  }
  template <int kTogether, int kAtATime>
  static __device__ void merge_in_memory(const DecodeArguments& a, const Place& place,
                                         const Request& request, const Rows& rows,
                                         const DecodeParts& parts, int shares) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 1
    for (int first = warp; first < shares; first += kTogether * kWarps) {
      Part merged[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        // Behind the last share, the last row again.
        const int share = min(first + i * kWarps, shares - 1);
        const int row = min(row_of(share), rows.count - 1);
        const int column = min(column_of(share), a.value_dim - 4);
        merged[i] = merge<kAtATime>(parts.count, [&](int number) {
          return PartialRows(a, place, parts, number).read(a, row, column);
        });
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int share = first + i * kWarps;
        if (share >= shares) break;
        in_share(a, rows, share, [&](int row, int column) {
          store(a, place, request, rows, row, column, merged[i]);
        });
      }
    }
  }

  // ---- The kernel

  static __device__ Shared& shared_memory() {
    extern __shared__ __align__(128) char memory[];
    return *reinterpret_cast<Shared*>(memory);
  }

  // A split of a unit.
  static __device__ void run_split(const DecodeArguments& a) {
    Shared& shared = shared_memory();
    const Place place(a);
    const Request request = Request::equal(a, static_cast<int>(blockIdx.y));
    const Rows rows(a, place, request);
    const Shares shares(a, rows);
    if (shares.cluster_size > 1) expect_parts(shares, place.rank, shared);
    // The warps of all splits take tiles in turn.
    const int split = place.cluster * a.cluster_size + place.rank;
    const KeyRange range{request.first_key(rows.query(a, 0)) + split * kBlockKv,
                         a.clusters * a.cluster_size * kBlockKv,
                         request.end_key(rows.query(a, rows.count - 1))};
    Loads loads = begin(a, shared, place, request, rows, range);
    State state;
    attend(a, shared, request, rows, loads, state);
    store_state(rows, state, shared);
    Delay::before_barrier();
    __syncthreads();
    merge_all(a, shared, place, request, rows, shares);
  }

  // The pieces of every portion that this thread block takes.
  static __device__ void run_portions(const DecodeArguments& a) {
    Shared& shared = shared_memory();
    const Place place(a);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    Portions<kBlockKv> portions(a, shared.ways[warp].walk);
    int turn = 0;
    const auto next = [&]() -> DecodePiece& { return shared.ways[warp].pieces[turn]; };
    // Some requests have no rows for this thread block.
    const auto find_next = [&] {
      while (portions.next(next())) {
        if (Rows(a, place, next().request).count > 0) return true;
      }
      return false;
    };
    const auto begin_next = [&] {
      const Request& request = next().request;
      const Rows rows(a, place, request);
      const int end = request.end_key(rows.query(a, rows.count - 1));
      return begin(a, shared, place, request, rows,
                   {next().first_key, kBlockKv, min(next().end_key, end)});
    };
    bool is_more = find_next();
    if (!is_more) return;
    Loads loads = begin_next();
    while (is_more) {
      const DecodePiece& piece = next();
      const Rows rows(a, place, piece.request);
      State state;
      attend(a, shared, piece.request, rows, loads, state);
      store_state(rows, state, shared);
      turn ^= 1;
      is_more = find_next();
      if (kLoadsAhead && is_more) loads = begin_next();
      Delay::before_barrier();
      __syncthreads();
      merge_parts(a, shared, place, piece.request, rows, piece.parts);
      if (kLoadsAhead || !is_more) continue;
      Delay::before_barrier();
      __syncthreads();  // before the next keys take the place of what is merged
      loads = begin_next();
    }
  }

  static __device__ void run(const DecodeArguments& a) {
    if constexpr (kTakesPortions) {
      run_portions(a);
    } else {
      run_split(a);
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kAtOnce)
    decode_kernel(const __grid_constant__ DecodeArguments arguments) {
  Kernel::run(arguments);
}

}  // namespace flashbench::kernels::sm90
