// Rounds bf16 Q, K and V to e4m3 in one launch, each head by a factor of its own (see
// quantize.cuh). All thread blocks of the launch run at the same time. In each, one warp loads
// blocks of rows by TMA, eight find their largest magnitudes and round them, and one exchanges
// magnitudes with the other thread blocks that have a part of the head:
//
//   rounding:  block n from shared memory to registers, the magnitude of block n + kAhead, then
//              rounds block n
//   exchange:  reports block n + kAhead, then waits until all blocks of block n's head are reported
//
// So a thread block rarely waits. None waits for ever: heads that are together (index_of) have at
// most (kAhead + 1) * gridDim blocks, so that a thread block has at most kAhead + 1 of them, and
// reports all before it waits for one of these heads. The earliest heads that any waits for are
// therefore reported in full.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/quantize.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

struct QuantizeHeadsArguments : QuantizeArguments {
  CUtensorMap q_map, k_map, v_map;  // boxes of QuantizeHeads::kBlockRows rows
  // How many launches were before, less 1, and a count of this one's thread blocks that have ended
  // (see ForwardTiles::take_tile). Both begin at UINT_MAX.
  unsigned *launches, *ended;
};

template <int kHeadDim>
struct QuantizeHeads : Barriers<NoDelay> {
  static constexpr int kColumns = quantized_columns(kHeadDim, false);
  static constexpr int kBlockRows = 128 * 128 / kColumns;
  using Block = QuantizedBlock<kHeadDim, kColumns, kBlockRows>;
  static constexpr int kPanels = kColumns / 64, kPanelBytes = kBlockRows * kRowBytes;
  static constexpr int kAtOnce = 2;                         // thread blocks of a multiprocessor
  static constexpr int kTogether = kHeadDim == 64 ? 2 : 1;  // heads, if their number allows
  static constexpr int kStages = 3;
  static constexpr int kAhead = 2;
  static_assert(kStages > kAhead);  // one to load, as block n is in registers
  static constexpr int kWarps = 8;  // that round
  static constexpr int kThreads = 32 * (kWarps + 2);
  static constexpr int kRows = kBlockRows / kWarps;    // of a warp
  static constexpr int kChunks = kRows * kPanels / 4;  // of 16 bytes, of a lane
  using Ring = RingPosition<kStages>;
  static constexpr int kSlots = kAhead + 1;
  using Slot = RingPosition<kSlots>;

  // A block to round: what each element is divided by, and where its bytes go. `rows` of it exist.
  struct Rounding {
    float divisor;
    int rows;
    uint8_t* to;
  };

  struct Shared {
    alignas(1024) char blocks[kStages][kPanels * kPanelBytes];
    uint64_t full[kStages], empty[kStages];
    // Of the current block and those ahead.
    uint64_t found[kSlots], known[kSlots];
    unsigned magnitudes[kSlots][kWarps];  // the bits of a float
    Rounding roundings[kSlots];
  };

  static __device__ void initialise_barriers(Shared& shared) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.empty[i]), kWarps);
    }
    for (int i = 0; i < kSlots; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.found[i]), kWarps);
      ptx::mbarrier_init(ptx::shared_address(&shared.known[i]), 1);
    }
    ptx::fence_mbarrier_init();
  }

  // The index of the block that is i-th in order. Of heads that are together, the blocks of the
  // same rows follow each other: a row of one alone has 128 bytes.
  static __device__ int index_of(const QuantizeHeadsArguments& a, int i) {
    if constexpr (kTogether == 1) return i;
    const Block block(a, i);
    const QuantizedTensor& tensor = block.tensor;
    const int place = block.number % (tensor.heads_together * tensor.row_blocks);
    const int row = place / tensor.heads_together, head = place % tensor.heads_together;
    return i - place + head * tensor.row_blocks + row;
  }

  // Called by one lane.
  static __device__ void load(const QuantizeHeadsArguments& a, Shared& shared) {
    Ring ring;
    for (int i = static_cast<int>(blockIdx.x); i < a.blocks; i += static_cast<int>(gridDim.x)) {
      const Block block(a, index_of(a, i));
      const CUtensorMap& map = &block.tensor == &a.q ? a.q_map : block.is_v ? a.v_map : a.k_map;
      wait(shared.empty[ring.stage], ring.parity ^ 1);
      const uint32_t full = ptx::shared_address(&shared.full[ring.stage]);
      ptx::mbarrier_arrive_expect_tx(full, kPanels * kPanelBytes);
      const RowsOfHead rows{block.head % block.tensor.heads, block.head / block.tensor.heads};
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        rows.load(ptx::shared_address(shared.blocks[ring.stage]) + panel * kPanelBytes, map,
                  block.first_column + panel * 64, block.first_row, full,
                  ptx::CachePolicy::evict_first);
      }
      ring.advance();
    }
  }

  // Called by a warp.
  static __device__ void exchange(const QuantizeHeadsArguments& a, Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32, step = static_cast<int>(gridDim.x);
    const unsigned parity = (__ldcg(a.launches) + 1) & 1;
    int ahead = static_cast<int>(blockIdx.x);
    Slot next, current;
    const auto report_next = [&]() {
      if (ahead < a.blocks) {
        wait(shared.found[next.stage], next.parity);
        const unsigned magnitude =
            __reduce_max_sync(~0u, lane < kWarps ? shared.magnitudes[next.stage][lane] : 0u);
        if (lane == 0) report(a, index_of(a, ahead), magnitude, parity);
      }
      ahead += step;
      next.advance();
    };
    for (int i = 0; i < kAhead; ++i) report_next();
    for (int i = static_cast<int>(blockIdx.x); i < a.blocks; i += step) {
      report_next();
      const int index = index_of(a, i);
      const Block block(a, index);
      const QuantizedTensor& tensor = block.tensor;
      const int from_first = block.number % block.of_head(), first = index - from_first;
      const unsigned largest =
          largest_reported<4>(a.amaxes, first + lane, first + block.of_head(), 32, parity);
      const float divisor = descale_of(__reduce_max_sync(~0u, largest));
      __syncwarp();  // all lanes have read shared.magnitudes before the first one arrives
      if (lane == 0) {
        if (from_first == 0) tensor.descales[block.head] = divisor;
        shared.roundings[current.stage] = {divisor, tensor.rows - block.first_row, block.to()};
        arrive(shared.known[current.stage]);
      }
      current.advance();
    }
  }

  // Chunk `chunk` of 16 bytes of a row, as TMA swizzles them.
  static __device__ uint4 chunk_at(const char* block, int row, int chunk) {
    const char* panel = block + chunk / 8 * kPanelBytes;
    return *reinterpret_cast<const uint4*>(panel + row * kRowBytes + (chunk % 8 ^ row % 8) * 16);
  }

  // Calls each(i, row, chunk) for this lane's chunks of the warp's rows. Eight lanes have a row of
  // a panel.
  template <typename Each>
  static __device__ void for_chunks(int warp, int lane, const Each& each) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      each(i, warp * kRows + i / kPanels * 4 + lane / 8, i % kPanels * 8 + lane % 8);
    }
  }

  // Calls each(i, key_block, word, chunk) for what this lane has of V, which is transposed: chunks
  // i to i + 3 are `chunk` of the four keys of a word of this block of kTransposedKeys. Of 8 lanes
  // that read at once, no two meet in a bank; a warp writes 8 words of a column, a sector.
  template <typename Each>
  static __device__ void for_words(int warp, int lane, const Each& each) {
    constexpr int kQuads = kColumns / 32;  // of chunks; four warps have all words of one
    const int word = warp % 4 * 8 + lane / 8 % 2 * 4 + lane % 4;
#pragma unroll
    for (int i = 0; i < kChunks; i += 4) {
      const int quad = warp / 4 + i / 4 * (kWarps / 4);
      each(i, quad / kQuads, word, quad % kQuads * 4 + lane / 16 * 2 + lane / 4 % 2);
    }
  }

  static __device__ unsigned largest_of_rows(const char* block, int warp, int lane) {
    __nv_bfloat162 largest{};
    for_chunks(warp, lane,
               [&](int, int row, int chunk) { raise(largest, chunk_at(block, row, chunk)); });
    return __reduce_max_sync(~0u, __float_as_uint(larger(largest)));
  }

  // What a lane has of a block.
  struct Chunks {
    uint4 of[kChunks];
  };

  static __device__ Chunks take(const char* block, bool is_v, int warp, int lane) {
    Chunks x;
    if (is_v) {
      for_words(warp, lane, [&](int i, int key_block, int word, int chunk) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          x.of[i + j] = chunk_at(block, key_block * kTransposedKeys + key_of_word(word, j), chunk);
        }
      });
    } else {
      for_chunks(warp, lane,
                 [&](int i, int row, int chunk) { x.of[i] = chunk_at(block, row, chunk); });
    }
    return x;
  }

  static __device__ void round_rows(const Chunks& chunks, const Rounding& by, int warp, int lane) {
    const Quotient over(by.divisor);
    const auto round_those = [&](const auto& exists) {
      for_chunks(warp, lane, [&](int i, int row, int chunk) {
        float x[8];
        unpack(chunks.of[i], x);
        if (exists(row)) {
          *reinterpret_cast<uint2*>(by.to + row * kHeadDim + chunk * 8) = rounded(over, x);
        }
      });
    };
    if (by.rows >= kBlockRows) {  // without branches between chunks
      round_those([](int) { return true; });
    } else {
      round_those([&](int row) { return row < by.rows; });
    }
  }

  static __device__ void round_keys(const Chunks& chunks, const Rounding& by, int warp, int lane) {
    const Quotient over(by.divisor);
    for_words(warp, lane, [&](int i, int key_block, int word, int chunk) {
      if (key_block > 0 && key_block * kTransposedKeys >= by.rows) return;
      auto* const words =
          reinterpret_cast<uint32_t*>(by.to + key_block * kHeadDim * kTransposedKeys) + word;
      const uint4 keys[4] = {chunks.of[i], chunks.of[i + 1], chunks.of[i + 2], chunks.of[i + 3]};
      sm90::round_keys(over, keys, [&](int column, uint32_t bytes) {
        words[(8 * chunk + column) * (kTransposedKeys / 4)] = bytes;
      });
    });
  }

  static __device__ void round(const QuantizeHeadsArguments& a, Shared& shared, int warp) {
    const int lane = static_cast<int>(threadIdx.x) % 32, step = static_cast<int>(gridDim.x);
    Ring next, current;
    Slot next_slot, current_slot;
    const auto find_magnitude = [&](int i) {
      if (i < a.blocks) {
        wait(shared.full[next.stage], next.parity);
        const unsigned largest = largest_of_rows(shared.blocks[next.stage], warp, lane);
        __syncwarp();  // all lanes have read shared.roundings before the first one arrives
        if (lane == 0) {
          shared.magnitudes[next_slot.stage][warp] = largest;
          arrive(shared.found[next_slot.stage]);
        }
      }
      next.advance();
      next_slot.advance();
    };
    const int first = static_cast<int>(blockIdx.x);
#pragma unroll 1
    for (int i = first; i < first + kAhead * step; i += step) find_magnitude(i);
#pragma unroll 1
    for (int i = first; i < a.blocks; i += step) {
      const bool is_v = i >= a.q.blocks + a.k.blocks;
      const Chunks chunks = take(shared.blocks[current.stage], is_v, warp, lane);
      __syncwarp();
      release(lane, shared.empty[current.stage]);
      find_magnitude(i + kAhead * step);
      wait(shared.known[current_slot.stage], current_slot.parity);
      const Rounding by = shared.roundings[current_slot.stage];
      __builtin_assume(__isGlobal(by.to));
      if (is_v) {
        round_keys(chunks, by, warp, lane);
      } else {
        round_rows(chunks, by, warp, lane);
      }
      current.advance();
      current_slot.advance();
    }
  }
};

template <int kHeadDim>
__global__ void __launch_bounds__(QuantizeHeads<kHeadDim>::kThreads,
                                  QuantizeHeads<kHeadDim>::kAtOnce)
    quantize_heads_kernel(const __grid_constant__ QuantizeHeadsArguments a) {
  using Kernel = QuantizeHeads<kHeadDim>;
  extern __shared__ __align__(1024) char shared_memory[];
  auto& shared = *reinterpret_cast<typename Kernel::Shared*>(shared_memory);
  ptx::griddepcontrol_launch_dependents();
  if (threadIdx.x == 0) Kernel::initialise_barriers(shared);
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < Kernel::kWarps) {
    Kernel::round(a, shared, warp);
  } else if (warp > Kernel::kWarps) {
    if (threadIdx.x % 32 == 0) Kernel::load(a, shared);
  } else {
    Kernel::exchange(a, shared);
    if (threadIdx.x % 32 != 0) return;
    const unsigned last = gridDim.x - 1, before = atomicInc(a.ended, last);
    if (before + 1 == last || last == 0) ++*a.launches;
  }
}

}  // namespace flashbench::kernels::sm90
