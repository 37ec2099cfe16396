// Where requests differ in length: the kernel before the backward pass's other kernels, which lists
// the work items of the main kernel. A thread block that found its own item would do so for several
// microseconds before it could load anything, and a multiprocessor has no room for another one
// meanwhile. Without a mask, the kernel also splits the items of the last wave into pieces, where
// the main kernel takes them (see kernels/common/last_wave.h).
#pragma once

#include <cstdint>

#include "kernels/backward/backward.h"
#include "kernels/backward/requests.h"
#include "kernels/common/last_wave.h"
#include "kernels/common/sections.cuh"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/target.h"

namespace flashbench::kernels::backward {

// The items of the last wave (see kernels/common/last_wave.h). All functions are called by whole
// warps.
template <typename Work>
class LastItems {
 public:
  template <typename Arguments>
  explicit __device__ LastItems(const Arguments& a) {
    const RowStarts& keys = a.requests.keys;
    const int count = a.requests.count, lane = static_cast<int>(threadIdx.x) % 32;
    int all = 0, blocks = 0, last_32 = 0;
    for (int first = 0; first < count; first += 32) {
      const int request = first + lane;
      const int rows = request < count ? keys.cu_rows[request + 1] - keys.cu_rows[request] : 0;
      blocks = (rows + Work::kKeys - 1) / Work::kKeys;
      all += blocks;
      last_32 = first;
    }
    blocks_ = __reduce_add_sync(~0u, blocks);
    first_slot_ = keys.cu_rows[last_32] / Work::kKeys + last_32;
    first_head_ = a.sections.last * a.sections.heads;
    heads_ = a.kv_heads - first_head_;
    // Items have lengths of their own, see kLeastPieceSteps: 12 is divisible by all numbers of
    // pieces. The list has room for the pieces of one wave.
    wave_ = last_wave(int64_t{__reduce_add_sync(~0u, all)} * a.kv_heads, a.at_once, 1,
                      {.item = 12, .ends = 0, .least_share = 1});
    // Two fill the gaps that items of different lengths leave.
    const bool lengths_differ = keys.cu_rows[count] < int64_t{count} * keys.length;
    if (wave_.pieces == 1 && lengths_differ) wave_.pieces = 2;
    wave_.items = min(wave_.items, blocks_ * heads_);
  }

  // The further pieces of all items.
  __device__ int further_pieces() const { return wave_.items * (wave_.pieces - 1); }

  // Lists `item`, which has the number `index`, in pieces, if it is one of the last wave; else
  // returns false. The first piece takes its place, and the others have theirs from `further` on.
  template <typename Arguments>
  __device__ bool list(const Arguments& a, const Work& item, int index, int further) const {
    const auto [head, slot] = item_in_sections(index, a.kv_heads, a.sections, a.key_blocks);
    const int block = slot - first_slot_;
    if (head < first_head_ || block < 0) return false;
    const int behind = (blocks_ - block) * heads_ - (head - first_head_) - 1;  // further items
    if (behind >= wave_.items) return false;
    const int count = min(max(1, item.steps / kLeastPieceSteps), wave_.pieces);
    const int number = static_cast<int>(threadIdx.x) % 32;
    if (number < wave_.pieces) {
      const int at = number == 0 ? index : further + behind * (wave_.pieces - 1) + number - 1;
      Work& to = Work::in_list(a, at);
      if (number < count) {
        to = item.piece(a, number,
                        {static_cast<int16_t>(count), static_cast<int16_t>(behind * wave_.pieces)});
      } else {
        to.exists = false;
      }
    }
    return true;
  }

 private:
  LastWave wave_;
  // The last section of heads, and in it the last 32 requests or fewer, whose slots come last (see
  // kernels/common/requests.cuh). They have so many blocks of keys.
  int first_head_, heads_, first_slot_, blocks_;
};

// Lists an item and its pieces. Behind all items, the list has room for as many further pieces as
// items run at once.
template <typename Work, typename Arguments>
__device__ __forceinline__ void list_in_pieces(const Arguments& a, int index) {
  const LastItems<Work> last(a);
  const int lane = static_cast<int>(threadIdx.x) % 32, items = a.work_items - a.at_once;
  if (index < items) {
    const Work item = Work::look_up(a, index);
    const bool listed = item.exists && last.list(a, item, index, items);
    if (!listed && lane == 0) Work::in_list(a, index) = item;
    return;
  }
  const int piece = index - items;
  if (piece >= last.further_pieces() && lane == 0) Work::in_list(a, index).exists = false;
  static_assert(kMostPiecesAtOnce * kMostPieceWarps == 32);
  a.piece_arrivals[piece * 32 + lane] = 0;
}

// A warp lists an item.
template <typename Work, typename Arguments>
__global__ void __launch_bounds__(kListingThreads)
    backward_list_work(const __grid_constant__ Arguments a) {
  static_assert(sizeof(Work) == kRequestWorkBytes);
  if constexpr (ptx::has_sm_90()) ptx::griddepcontrol_launch_dependents();
  const int index = static_cast<int>(blockIdx.x * kListingThreads + threadIdx.x) / 32;
  if (index >= a.work_items) return;
  if constexpr (Work::kMaySplit) {
    if (a.at_once > 0) {
      list_in_pieces<Work>(a, index);
      return;
    }
  }
  const Work found = Work::look_up(a, index);
  if (threadIdx.x % 32 == 0) Work::in_list(a, index) = found;
}

}  // namespace flashbench::kernels::backward
