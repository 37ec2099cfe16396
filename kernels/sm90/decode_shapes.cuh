// The sizes of tiles and of shared memory in a decoding kernel for Hopper.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/mma/shared_tile.h"
#include "kernels/sm90/decode_arguments.cuh"
#include "kernels/sm90/decode_keys.cuh"
#include "kernels/sm90/decode_portions.cuh"
#include "kernels/sm90/decode_splits.h"

namespace flashbench::kernels::sm90 {

template <typename T, DecodeConfig kConfig>
struct DecodeShapes {
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

  // Bytes are exact in fp16, in which they are multiplied whatever the dtype of Q: K and V's
  // factors and what scales Q are applied to scores and O.
  static constexpr bool kByteCache = kConfig.byte_cache;
  using Key = std::conditional_t<kByteCache, uint8_t, T>;
  using Product = std::conditional_t<kByteCache, __half, T>;

  static constexpr bool kFp32O = kConfig.fp32_o;

  static constexpr bool kTakesPortions = kConfig.batch == DecodeBatch::portions;

  // Q stays in registers where there is room beside S and O.
  static constexpr bool kKeepQ = kRowTiles * (kDimSteps + kKeyTiles + kValueTiles) * 4 <= 160;

  using QTile = mma::SharedTile<kBlockQ, kHeadDim>;
  // A tile of bytes has two of them for a column of 16 bits.
  using KTile = mma::SharedTile<kKeys, kHeadDim* int{sizeof(Key)} / 2>;
  using VTile = mma::SharedTile<kKeys, kValueDim* int{sizeof(Key)} / 2>;
  using Keys = std::conditional_t<kConfig.batch == DecodeBatch::equal, EqualKeys<Key>,
                                  PagedKeys<Key, kKeys, kStages>>;

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
      kTakesPortions &&
      kAtOnce * (kWarps * sizeof(RingAndO) + 2 * QTile::kBytes + 4096) <= size_t{227} << 10;
  using WarpMemory = std::conditional_t<kLoadsAhead, RingAndO, RingOrO>;
  struct Shared {
    alignas(128) char q[kLoadsAhead ? 2 : 1][QTile::kBytes];  // with that of the next request
    WarpMemory warps[kWarps];
    float maximum[kWarps][kBlockQ], sum[kWarps][kBlockQ];
    float score_scale[kByteCache ? kBlockQ : 1];  // of each row (DecodeLoads::scale_q)
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
};

}  // namespace flashbench::kernels::sm90
