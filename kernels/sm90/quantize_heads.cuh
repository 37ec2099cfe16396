// Rounds bf16 Q, K and V to e4m3 in one launch, each head by a factor of its own (see
// quantize.cuh). All thread blocks of the launch run at the same time. In each, one warp loads
// blocks of rows by TMA, eight find their largest magnitudes and round them, and one exchanges
// magnitudes with the other thread blocks that have a part of the head:
//
//   rounding:  the magnitude of block n + kAhead, then rounds block n
//   exchange:  reports block n + kAhead, then waits until all blocks of block n's head are reported
//
// So a thread block rarely waits. None waits for ever: a head has at most (kAhead + 1) * gridDim
// blocks, so that a thread block has at most kAhead + 1 of them, and reports all before it waits
// for that head. The earliest head that any waits for is therefore reported in full.
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
  CUtensorMap q_map, k_map, v_map;  // boxes of kQuantizedRows rows
  // How many launches were before, less 1, and a count of this one's thread blocks that have ended
  // (see ForwardTiles::take_tile). Both begin at UINT_MAX.
  unsigned *launches, *ended;
};

template <int kHeadDim>
struct QuantizeHeads : Barriers<NoDelay> {
  using Block = QuantizedBlock<kHeadDim, quantized_columns(kHeadDim, false)>;
  static constexpr int kColumns = quantized_columns(kHeadDim, false);
  static constexpr int kPanels = kColumns / 64, kPanelBytes = kQuantizedRows * kRowBytes;
  static constexpr int kAtOnce = kColumns == 64 ? 3 : 2;  // thread blocks of a multiprocessor
  static constexpr int kStages = kColumns == 64 ? 4 : 3;
  static constexpr int kAhead = 1;
  static_assert(kStages > kAhead + 1);  // one to load
  static constexpr int kWarps = 8;      // that round
  static constexpr int kThreads = 32 * (kWarps + 2);
  static constexpr int kRows = kQuantizedRows / kWarps;  // of a warp
  using Ring = RingPosition<kStages>;
  static constexpr int kSlots = kAhead + 1;
  using Slot = RingPosition<kSlots>;

  // A block to round: what each element is divided by, and where its bytes go. `rows` of it exist.
  struct Rounding {
    float divisor;
    int rows;
    uint8_t* to;
    bool is_v;
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

  // Called by one lane.
  static __device__ void load(const QuantizeHeadsArguments& a, Shared& shared) {
    Ring ring;
    for (int i = static_cast<int>(blockIdx.x); i < a.blocks; i += static_cast<int>(gridDim.x)) {
      const Block block(a, i);
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
        if (lane == 0) report(a, ahead, magnitude, parity);
      }
      ahead += step;
      next.advance();
    };
    for (int i = 0; i < kAhead; ++i) report_next();
    for (int i = static_cast<int>(blockIdx.x); i < a.blocks; i += step) {
      report_next();
      const Block block(a, i);
      const QuantizedTensor& tensor = block.tensor;
      const int from_first = block.number % block.of_head(), first = i - from_first;
      const unsigned largest =
          largest_reported<4>(a.amaxes, first + lane, first + block.of_head(), 32, parity);
      const float divisor = descale_of(__reduce_max_sync(~0u, largest));
      if (lane == 0) {
        if (from_first == 0) tensor.descales[block.head] = divisor;
        shared.roundings[current.stage] = {divisor, tensor.rows - block.first_row, block.to(),
                                           block.is_v};
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

  // Calls each(row, chunk) for this lane's chunks of the warp's rows. Eight lanes have a row of a
  // panel.
  template <typename Each>
  static __device__ void for_chunks(int warp, int lane, const Each& each) {
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        each(warp * kRows + i + lane / 8, panel * 8 + lane % 8);
      }
    }
  }

  static __device__ unsigned largest_of_rows(const char* block, int warp, int lane) {
    __nv_bfloat162 largest{};
    for_chunks(warp, lane,
               [&](int row, int chunk) { raise(largest, chunk_at(block, row, chunk)); });
    return __reduce_max_sync(~0u, __float_as_uint(larger(largest)));
  }

  static __device__ void round_rows(const char* block, const Rounding& by, int warp, int lane) {
    const Quotient over(by.divisor);
    const auto round_those = [&](const auto& exists) {
      for_chunks(warp, lane, [&](int row, int chunk) {
        float x[8];
        unpack(chunk_at(block, row, chunk), x);
        if (exists(row)) {
          *reinterpret_cast<uint2*>(by.to + row * kHeadDim + chunk * 8) = rounded(over, x);
        }
      });
    };
    if (by.rows >= kQuantizedRows) {  // without branches between chunks
      round_those([](int) { return true; });
    } else {
      round_those([&](int row) { return row < by.rows; });
    }
  }

  // Transposed. A lane has 8 columns of the four keys of a word. Of 8 lanes that read at once, no
  // two meet in a bank; a warp writes 8 words of a column, a sector.
  static __device__ void round_keys(const char* block, const Rounding& by, int warp, int lane) {
    const Quotient over(by.divisor);
    const int word = warp % 4 * 8 + lane / 8 % 2 * 4 + lane % 4;
    auto* const words = reinterpret_cast<uint32_t*>(by.to) + word;
    // Four warps have the words of four chunks.
#pragma unroll
    for (int first = warp / 4 * 4; first < kColumns / 8; first += kWarps / 4 * 4) {
      const int chunk = first + lane / 16 * 2 + lane / 4 % 2;
      uint4 keys[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) keys[i] = chunk_at(block, key_of_word(word, i), chunk);
      sm90::round_keys(over, keys, [&](int column, uint32_t bytes) {
        words[(8 * chunk + column) * (kTransposedKeys / 4)] = bytes;
      });
    }
  }

  static __device__ void round(const QuantizeHeadsArguments& a, Shared& shared, int warp) {
    const int lane = static_cast<int>(threadIdx.x) % 32, step = static_cast<int>(gridDim.x);
    int ahead = static_cast<int>(blockIdx.x);
    Ring next, current;
    Slot next_slot, current_slot;
    const auto find_next = [&]() {
      if (ahead < a.blocks) {
        wait(shared.full[next.stage], next.parity);
        const unsigned largest = largest_of_rows(shared.blocks[next.stage], warp, lane);
        if (lane == 0) {
          shared.magnitudes[next_slot.stage][warp] = largest;
          arrive(shared.found[next_slot.stage]);
        }
      }
      ahead += step;
      next.advance();
      next_slot.advance();
    };
#pragma unroll 1
    for (int i = 0; i < kAhead; ++i) find_next();
#pragma unroll 1
    for (int i = static_cast<int>(blockIdx.x); i < a.blocks; i += step) {
      find_next();
      wait(shared.known[current_slot.stage], current_slot.parity);
      const Rounding by = shared.roundings[current_slot.stage];
      __builtin_assume(__isGlobal(by.to));
      const char* block = shared.blocks[current.stage];
      if (by.is_v) {
        round_keys(block, by, warp, lane);
      } else {
        round_rows(block, by, warp, lane);
      }
      __syncwarp();
      release(lane, shared.empty[current.stage]);
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
