// The sizes of blocks, registers and shared memory of a forward kernel for Hopper.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/forward_tiles.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <Config kConfig>
struct ForwardShapes {
  using KernelArguments = Arguments;
  using Tiles = ForwardTiles<kConfig>;
  using Tile = typename Tiles::Tile;
  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kBlockQ = kConfig.block_q;
  static constexpr int kBlockKv = kConfig.block_kv;
  static constexpr int kStages = kConfig.stages;
  static constexpr int kConsumers = kBlockQ / kConsumerRows;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static_assert(kHeadDim % 16 == 0 && kBlockKv % 16 == 0);
  static constexpr bool kByRequest = kConfig.by_request;
  static constexpr bool kLooksUp = kConfig.looks_up;
  static constexpr bool kShared = kConfig.shared;
  static constexpr bool kInParts = kConfig.in_parts;
  // Whether ForwardWalk::first_seen is a variable, even if it is 0 at equal lengths.
  static constexpr bool kFirstSeenVaries = true;
  static constexpr int kAtOnce = kConfig.at_once;
  static constexpr bool kTurns = kConfig.turns;
  static_assert(!kTurns || kConsumers == 2);

  // Registers per thread. The registers of a multiprocessor are divided among its thread blocks, in
  // multiples of 8 per thread.
  static constexpr int kLaunchRegisters = 65536 / (kThreads * kAtOnce) / 8 * 8;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters =
      (kLaunchRegisters * (1 + kConsumers) - kProducerRegisters) / kConsumers / 8 * 8;
  static_assert(kConsumerRegisters <= 255);

  static constexpr int kPanelColumns = 64;
  static constexpr int kPanels = (kHeadDim + 63) / 64;
  static constexpr int kQPanelBytes = kConsumerRows * kRowBytes;
  static constexpr int kKPanelBytes = kBlockKv * kRowBytes;   // of V, too
  static constexpr int kOPanelBytes = kWarpRows * kRowBytes;  // per warp
  static constexpr bool kTransposedV = false;

  static constexpr int kSFloats = kBlockKv / 2;  // registers per thread for 64 rows
  static constexpr int kOFloats = kHeadDim / 2;
  static constexpr int kPSteps = kBlockKv / 16;

  // The number of tiles in the ring, including the one that the consumers work on.
  static constexpr int kTileSlots = 4;
  // Arrivals of a consumer's warp that is done with a tile, and of a warp of the producer. Tiles by
  // request, and of pieces, take several reads. Each lane that reads arrives for itself, since
  // racecheck reports a race if one arrives for its warp. By request the producer's warps read,
  // too.
  static constexpr int kTileArrivals = kByRequest || Tiles::kHasPieces ? 32 : 1;
  static constexpr int kLoaderArrivals = kByRequest ? 32 : 1;

  struct Shared {
    alignas(1024) char q[kConsumers][kPanels * kQPanelBytes];
    alignas(1024) char k[kStages][kPanels * kKPanelBytes];
    alignas(1024) char v[kStages][kPanels * kKPanelBytes];
    alignas(1024) char o[kConfig.stage_o ? 4 * kConsumers : 0][kPanels * kOPanelBytes];  // per warp
    // `full` completes when the buffer has been filled, `empty` when it may be filled again.
    uint64_t q_full[kConsumers], q_empty[kConsumers];
    uint64_t k_full[kStages], k_empty[kStages];
    uint64_t v_full[kStages], v_empty[kStages];
    uint64_t tile_full[kTileSlots], tile_empty[kTileSlots];
    Tile tiles[kTileSlots];
    uint64_t tile_wanted;  // with kLooksUp: completes when the next tile is to be looked up
  };
  using Ring = RingPosition<kStages>;
  using TileRing = RingPosition<kTileSlots>;

  static __device__ void initialise_barriers(const Arguments& a, auto& shared) {
    constexpr int kWarps = 4;  // per warpgroup; each warp arrives when it is done
    for (int i = 0; i < kConsumers; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.q_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.q_empty[i]), kWarps);
    }
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.k_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.v_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.k_empty[i]), kWarps * kConsumers);
      ptx::mbarrier_init(ptx::shared_address(&shared.v_empty[i]), kWarps * kConsumers);
    }
    // Warps of the producer that take tiles from the ring: that of Q, of K and of V.
    const int loaders = 1 + (kLooksUp ? 1 : 0) + (Tiles::has_pages(a) ? 1 : 0);
    for (int i = 0; i < kTileSlots; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.tile_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.tile_empty[i]),
                         loaders * kLoaderArrivals + kWarps * kConsumers * kTileArrivals);
    }
    if constexpr (kLooksUp) ptx::mbarrier_init(ptx::shared_address(&shared.tile_wanted), 1);
    ptx::fence_mbarrier_init();
  }
};

}  // namespace flashbench::kernels::sm90
