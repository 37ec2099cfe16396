// The work of a thread block of the backward pass's main kernel: its part (see split.h), or its
// piece (see kernels/common/last_wave.h), of the blocks of queries that see any key of its block,
// one query head after the other.
//
// Thread blocks that add to dQ in the order of their keys can go backwards: from the last block of
// queries to the first, and through all query heads at each block. All thread blocks see the last
// block: those that start together add to it shortly after one another, and keep this distance
// until they end. In a causal pass that went forwards, each thread block would begin with a block
// of queries that the thread blocks of earlier keys reach late, and would finish a query head
// before them.
//
// Without a mask, if the thread blocks of all keys run at once, they can also rotate: each begins
// one block of queries further on than the one before, and comes to the last block again after the
// first. In step, they all add to different blocks, and none waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "kernels/backward/requests.cuh"
#include "kernels/common/requests.cuh"
#include "kernels/common/sections.cuh"
#include "kernels/ptx/cp_async.h"
#include "kernels/ptx/shared_address.h"

namespace flashbench::kernels::backward {

// `kInPieces`: whether it may be a piece.
template <int kBlockQ, int kBlockKv, bool kBackwards = false, bool kInPieces = false>
struct Work {
  static constexpr bool kIsBackwards = kBackwards;
  static constexpr int exists = 1;  // only a RequestWork may have nothing to do
  static constexpr bool kKnowsWindows = false, kIsListed = false, kMaySplit = kInPieces;
  int batch, kv_head, part, key_block, first_key;
  int first_block, end_block;  // of queries that see any of the keys
  int start_head, start_block;
  int last_head, stop_block;  // exclusive end in last_head
  int steps;
  int rotation[kBackwards ? 1 : 0];  // the number of blocks of keys, if they rotate; else 0
  // How many thread blocks have a piece of the block of keys, this one that with the number `part`.
  // `first_piece` counts the pieces of the launch.
  struct Pieces {
    int16_t count, first_piece;
  };
  Pieces pieces[kMaySplit ? 1 : 0];

  Work() = default;
  template <typename Arguments>
  __host__ __device__ Work(const Arguments& a, int index) : Work(a, find(a, index)) {}

  // The same in two steps: what the work item `index` is, and its description.
  struct Found {
    SectionItem item;
    int piece;  // counts the pieces of the launch; negative if this is none
    __device__ bool exists() const { return true; }
    // By one thread. Others see it behind a barrier.
    template <typename Arguments>
    __device__ void describe(const Arguments& a, void* in_shared_memory) const {
      new (in_shared_memory) Work(a, *this);
    }
  };
  template <typename Arguments>
  static __host__ __device__ Found find(const Arguments& a, int index) {
    int piece = -1;
    if constexpr (kMaySplit) {
      piece = index - a.whole_items;
      if (piece >= 0) index = a.whole_items + piece / a.pieces;
    }
    return {item_in_sections(index, a.batch * a.kv_heads * a.parts, a.sections, a.key_blocks),
            piece};
  }
  template <typename Arguments>
  __host__ __device__ Work(const Arguments& a, const Found& found) {
    begin(a, found.item.head);
    int parts = a.parts;
    if constexpr (kMaySplit) {
      if (found.piece >= 0) {
        parts = a.pieces;
        part = found.piece % parts;
        pieces[0] = {static_cast<int16_t>(parts), static_cast<int16_t>(found.piece - part)};
      }
    }
    divide(a, found.item.block, parts, a.q_len, a.diagonal, a.key_end);
    if constexpr (kBackwards) rotation[0] = a.rotation;
  }

  __host__ __device__ bool rotates() const {
    if constexpr (kBackwards) return rotation[0] > 0;
    return false;
  }

  // How many blocks of keys add to this block of queries before this one.
  __host__ __device__ int turn(int block) const {
    if (!rotates()) return key_block;
    // The one that begins with it, those before that, and those behind it from the last on.
    const int begins = end_block - 1 - block;
    return (key_block > begins ? begins + rotation[0] : min(begins, rotation[0] - 1)) - key_block;
  }

  // What the equal lengths of a launch say; see RequestWork.
  template <typename Arguments>
  __host__ __device__ int q_len(const Arguments& a) const {
    return a.q_len;
  }
  template <typename Arguments>
  __host__ __device__ int diagonal(const Arguments& a) const {
    return a.diagonal;
  }
  template <typename Arguments>
  __host__ __device__ int key_end(const Arguments& a) const {
    return a.key_end;
  }
  // The rows of a head in the accumulators of dK and dV.
  template <typename Arguments>
  __device__ int rows_of_sums(const Arguments& a) const {
    return a.padded_kv;
  }
  // The first rows of a head in the workspace, beside those of its batch.
  __device__ int first_query_row() const { return 0; }
  __device__ int first_key_row() const { return 0; }

 protected:
  template <typename Arguments>
  __host__ __device__ void begin(const Arguments& a, int part_of_head) {
    const int head = part_of_head / a.parts;
    part = part_of_head % a.parts;
    batch = head / a.kv_heads;
    kv_head = head % a.kv_heads;
    if constexpr (kBackwards) rotation[0] = 0;
    if constexpr (kMaySplit) pieces[0] = {1, 0};
  }

  // Where a part of `all` begins: all * part / parts, without a product that exceeds 32 bits.
  static __host__ __device__ int first_of_part(int all, int part, int parts) {
    return all / parts * part + all % parts * part / parts;
  }

  template <typename Arguments>
  __host__ __device__ void divide(const Arguments& a, int block, int parts, int q_len, int diagonal,
                                  int key_end) {
    key_block = block;
    first_key = key_block * kBlockKv;
    const int blocks = (q_len + kBlockQ - 1) / kBlockQ;
    first_block = max(0, first_key - diagonal) / kBlockQ;
    end_block = first_key < key_end ? blocks : first_block;

    const int from = first_of_part(a.group * blocks, part, parts);
    const int to = first_of_part(a.group * blocks, part + 1, parts);
    start_head = kv_head * a.group + from / blocks;
    start_block = max(from % blocks, first_block);
    last_head = kv_head * a.group + to / blocks;
    stop_block = max(to % blocks, first_block);
    steps = end_block > first_block
                ? (last_head - start_head) * (end_block - first_block) + stop_block - start_block
                : 0;
    if (stop_block == first_block) {
      --last_head;
      stop_block = end_block;
    }
  }

  // The same where query i sees no key before i + first_from: the blocks end with the last one that
  // sees the last key.
  template <typename Arguments>
  __host__ __device__ void divide(const Arguments& a, int block, int parts, int q_len,
                                  int first_from, int diagonal, int key_end) {
    key_block = block;
    first_key = key_block * kBlockKv;
    const int blocks = (q_len + kBlockQ - 1) / kBlockQ;
    const int end_query = min(q_len, min(first_key + kBlockKv, key_end) - first_from);
    first_block = max(0, first_key - diagonal) / kBlockQ;
    end_block =
        first_key < key_end ? max(first_block, (end_query + kBlockQ - 1) / kBlockQ) : first_block;
    if (end_block == first_block) {
      start_head = last_head = 0;
      start_block = stop_block = first_block;
      steps = 0;
      return;
    }
    const int from = first_of_part(a.group * blocks, part, parts);
    const int to = first_of_part(a.group * blocks, part + 1, parts);
    start_head = kv_head * a.group + from / blocks;
    start_block = min(max(from % blocks, first_block), end_block);
    last_head = kv_head * a.group + to / blocks;
    stop_block = min(max(to % blocks, first_block), end_block);
    steps = (last_head - start_head) * (end_block - first_block) + stop_block - start_block;
    if (start_block == end_block) {
      ++start_head;
      start_block = first_block;
    }
    if (stop_block == first_block) {
      --last_head;
      stop_block = end_block;
    }
  }

 public:
  // Whether the part contains this block of queries, which is in [first_block, end_block).
  __host__ __device__ bool has(int head, int block) const {
    return (head != start_head || block >= start_block) &&
           (head != last_head || block < stop_block);
  }
};

// The work of a thread block whose requests have lengths of their own, or windows. Another kernel
// finds all items, and puts them into a list: a thread block that did so would take several
// microseconds before it could load anything.
template <int kBlockQ, int kBlockKv, bool kBackwards = false>
struct alignas(16) RequestWork : Work<kBlockQ, kBlockKv, kBackwards, !kBackwards> {
  static_assert(kRowPadding % kBlockQ == 0);
  using typename Work<kBlockQ, kBlockKv, kBackwards, !kBackwards>::Pieces;
  static constexpr bool kKnowsWindows = true, kIsListed = true;
  static constexpr int kKeys = kBlockKv;
  int exists;  // whether the slot has a block of keys; else there is nothing to do
  int of_batch, first_q, first_k, kv_len;  // see Request; first_q is that of the live ones

  // What the list says, as in Work.
  struct Found {
    const RequestWork& item;
    __device__ bool exists() const { return item.exists; }
    // A copy that takes no registers, and is complete.
    template <typename Arguments>
    __device__ void describe(const Arguments&, void* in_shared_memory) const {
#pragma unroll
      for (size_t at = 0; at < sizeof(RequestWork); at += 16) {
        ptx::cp_async_16(ptx::shared_address(in_shared_memory) + at,
                         reinterpret_cast<const char*>(&item) + at, 16);
      }
      ptx::cp_async_commit_group();
      ptx::cp_async_wait_group<0>();
    }
  };
  template <typename Arguments>
  static __device__ Found find(const Arguments& a, int index) {
    return {in_list(a, index)};
  }

  template <typename Arguments>
  static __device__ RequestWork& in_list(const Arguments& a, int index) {
    return static_cast<RequestWork*>(a.work_list)[index];
  }

  // Finds item `index` for the list. Called by whole warps.
  template <typename Arguments>
  static __device__ RequestWork look_up(const Arguments& a, int index) {
    const Requests& all = a.requests;
    const SectionItem item =
        item_in_sections(index, a.kv_heads * a.parts, a.sections, a.key_blocks);
    const RequestBlock found = block_at(all, item.block);
    RequestWork work;
    work.exists = found.request >= 0;
    if (!work.exists) return work;
    const Request r(all, found.request, a.q_heads);
    work.of_batch = r.batch;
    work.first_q = r.first_q + r.first_live;
    work.first_k = r.first_k;
    work.kv_len = r.kv_len;
    work.q_len_ = r.live;
    work.first_from_ = r.first_from;
    work.diagonal_ = r.diagonal;
    work.key_end_ = r.key_end;
    work.first_query_row_ = first_workspace_row(all.queries, found.request);
    work.first_key_row_ = first_workspace_row(all.keys, found.request);
    work.begin(a, item.head);
    work.divide(a, found.block, a.parts, r.live, r.first_from, r.diagonal, r.key_end);
    return work;
  }

  // Piece `number` of this item, if parts do not divide it.
  template <typename Arguments>
  __device__ RequestWork piece(const Arguments& a, int number, Pieces all) const {
    RequestWork piece = *this;
    piece.part = number;
    piece.pieces[0] = all;
    piece.divide(a, this->key_block, all.count, q_len_, first_from_, diagonal_, key_end_);
    return piece;
  }

  __device__ int turn(int block) const {
    return this->key_block - max(0, block * kBlockQ + first_from_) / kBlockKv;
  }

  template <typename Arguments>
  __device__ int q_len(const Arguments&) const {
    return q_len_;
  }
  // Query i sees keys max(0, i + first_from) to i + diagonal.
  template <typename Arguments>
  __device__ int first_from(const Arguments&) const {
    return first_from_;
  }
  template <typename Arguments>
  __device__ int diagonal(const Arguments&) const {
    return diagonal_;
  }
  template <typename Arguments>
  __device__ int key_end(const Arguments&) const {
    return key_end_;
  }
  template <typename Arguments>
  __device__ int rows_of_sums(const Arguments&) const {
    return kv_len;
  }
  __device__ int first_query_row() const {
    return first_query_row_;
  }
  __device__ int first_key_row() const {
    return first_key_row_;
  }

 private:
  static __device__ RequestBlock block_at(const Requests& all, int slot) {
    if (all.keys.cu_rows != nullptr) {
      return block_in_slot<kBlockKv>(all.keys.cu_rows, all.queries.cu_rows, all.count, slot,
                                     all.right == 0);
    }
    const int blocks = (all.keys.length + kBlockKv - 1) / kBlockKv, request = slot / blocks;
    return {request < all.count ? request : -1, slot % blocks, blocks};
  }

  int q_len_, first_from_, diagonal_, key_end_, first_query_row_, first_key_row_;
};

// The row of the first key in the accumulators of dK or dV.
template <typename Arguments, typename Work>
__device__ int64_t row_of_sums(const Arguments& a, const Work& work, bool deterministic) {
  const int slice = deterministic ? work.part : 0;
  return (int64_t{slice} * a.batch * a.kv_heads + work.batch * a.kv_heads + work.kv_head) *
             a.padded_kv +
         work.first_key_row() + work.first_key;
}

// The row of a query of a head in the accumulators of dQ.
template <typename Arguments, typename Work>
__device__ int64_t row_of_query(const Arguments& a, const Work& work, int head, int query) {
  return int64_t{work.batch * a.q_heads + head} * a.padded_q + work.first_query_row() + query;
}

// Iterates over the blocks of queries of the work.
struct Step {
  int head, block;

  Step() = default;
  template <typename Work>
  __host__ __device__ explicit Step(const Work& work)
      : head(work.start_head), block(work.start_block) {
    if constexpr (Work::kIsBackwards) {
      block = work.rotates()                      ? work.end_block - 1 - work.key_block
              : work.start_head == work.last_head ? work.stop_block - 1
                                                  : work.end_block - 1;
      if (!work.has(head, block)) advance(work);
    }
  }
  template <typename Work>
  __host__ __device__ void advance(const Work& work) {
    if constexpr (Work::kIsBackwards) {
      do {
        if (head == work.last_head) {
          head = work.start_head;
          if (--block < work.first_block && work.rotates()) block = work.end_block - 1;
        } else {
          ++head;
        }
      } while (block >= work.first_block && !work.has(head, block));
    } else if (++block == work.end_block) {
      block = work.first_block;
      ++head;
    }
  }
};

}  // namespace flashbench::kernels::backward
