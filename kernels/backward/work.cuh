// The work of a thread block of the backward pass's main kernel: its part (see split.h) of
// the blocks of queries that see any key of its block, one query head after the other.
//
// Thread blocks that add to dQ in the order of their keys can go backwards: from the last block of
// queries to the first, and through all query heads at each block. All thread blocks see the last
// block: those that start together add to it shortly after one another, and keep this distance
// until they end. In a causal pass that went forwards, each thread block would begin with a block
// of queries that the thread blocks of earlier keys reach late, and would finish a query head
// before them.
#pragma once

#include <cstdint>

#include "kernels/common/sections.cuh"

namespace flashbench::kernels::backward {

template <int kBlockQ, int kBlockKv, bool kBackwards = false>
struct Work {
  static constexpr bool kIsBackwards = kBackwards;
  int batch, kv_head, part, key_block, first_key;
  int first_block, end_block;  // of queries that see any of the keys
  int start_head, start_block;
  int last_head, stop_block;  // exclusive end in last_head
  int steps;

  template <typename Arguments>
  __host__ __device__ Work(const Arguments& a, int index) {
    const SectionItem item =
        item_in_sections(index, a.batch * a.kv_heads * a.parts, a.section_heads, a.key_blocks);
    const int head = item.head / a.parts;
    part = item.head % a.parts;
    batch = head / a.kv_heads;
    kv_head = head % a.kv_heads;
    key_block = item.block;
    first_key = key_block * kBlockKv;
    const int blocks = (a.q_len + kBlockQ - 1) / kBlockQ;
    first_block = max(0, first_key - a.diagonal) / kBlockQ;
    end_block = first_key < a.key_end ? blocks : first_block;

    const int64_t all_blocks = int64_t{a.group} * blocks;
    const int from = static_cast<int>(all_blocks * part / a.parts);
    const int to = static_cast<int>(all_blocks * (part + 1) / a.parts);
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

  // Whether the part contains this block of queries, which is in [first_block, end_block).
  __host__ __device__ bool has(int head, int block) const {
    return (head != start_head || block >= start_block) &&
           (head != last_head || block < stop_block);
  }

  // The row of the first key in the accumulators of dK or dV.
  template <typename Arguments>
  __device__ int64_t row_of_sums(const Arguments& a, bool deterministic) const {
    const int slice = deterministic ? part : 0;
    return (int64_t{slice} * a.batch * a.kv_heads + batch * a.kv_heads + kv_head) * a.padded_kv +
           first_key;
  }
};

// Iterates over the blocks of queries of the work.
struct Step {
  int head, block;

  template <typename Work>
  __host__ __device__ explicit Step(const Work& work)
      : head(work.start_head), block(work.start_block) {
    if constexpr (Work::kIsBackwards) {
      block = (work.start_head == work.last_head ? work.stop_block : work.end_block) - 1;
      if (!work.has(head, block)) advance(work);
    }
  }
  template <typename Work>
  __host__ __device__ void advance(const Work& work) {
    if constexpr (Work::kIsBackwards) {
      do {
        if (head == work.last_head) {
          head = work.start_head;
          --block;
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
