// Blocks of rows of the requests of a batch, found on the device from where the requests begin: the
// host knows how many requests and rows there are, but not which request has how many.
//
// Blocks are numbered by slots. The requests before request b have at most cu[b] / kBlock + b
// blocks, so that each request has as many slots as blocks, or one more, and block_slots() of all
// rows are enough.
#pragma once

namespace flashbench::kernels {

// One of the `blocks` blocks of a request; of none (-1) for a slot without a block.
struct RequestBlock {
  int request, block, blocks;
};

// The last of `count` indices for which begins(index) is true. It is for index 0, and for all
// before the last. Called by whole warps.
template <typename Begins>
__device__ __forceinline__ int last_that_begins(int count, const Begins& begins) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int index = 0;
  while (count > 1) {
    const int step = (count + 31) / 32, offset = lane * step;
    const unsigned found = __ballot_sync(~0u, offset < count && begins(index + offset));
    const int last = (__popc(found) - 1) * step;
    index += last;
    count = min(step, count - last);
  }
  return index;
}

// The block in a slot, of 32 requests the one with the most work first. `cu_rows` are where the
// rows of the requests begin, and `cu_others` the rows on the other side that they are multiplied
// with, [requests + 1]. Without a mask all blocks of a request have the same work, and the requests
// come one after the other. With a causal one, a block has the less work the higher its number, and
// blocks of all requests with as much come together. Called by whole warps.
template <int kBlock>
__device__ __forceinline__ RequestBlock block_in_slot(const int* cu_rows, const int* cu_others,
                                                      int requests, int slot, bool causal) {
  constexpr unsigned kAllLanes = ~0u;
  constexpr int kGroup = 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto first_slot = [&](int request) { return cu_rows[request] / kBlock + request; };

  const int group = last_that_begins((requests + kGroup - 1) / kGroup,
                                     [&](int index) { return first_slot(index * kGroup) <= slot; });
  const int first = group * kGroup, here = min(kGroup, requests - first);
  const int number = slot - first_slot(first);  // among the blocks of the group
  int rows = 0, others = -1;
  if (lane < here) {
    rows = cu_rows[first + lane + 1] - cu_rows[first + lane];
    others = cu_others[first + lane + 1] - cu_others[first + lane];
  }
  const int blocks = (rows + kBlock - 1) / kBlock;
  int block = 0;
  bool is_mine = false;
  if (causal) {
    // The work of a request's last block, and so that of all its blocks, in blocks.
    const int least = max(0, others - rows) / kBlock;
    const auto with_at_least = [&](int work) {
      return __reduce_add_sync(kAllLanes, min(blocks, max(0, blocks + least - work)));
    };
    int work = 0;
    for (int end = __reduce_max_sync(kAllLanes, blocks + least); end - work > 1;) {
      const int middle = work + (end - work) / 2;
      (with_at_least(middle) > number ? work : end) = middle;
    }
    block = blocks - 1 - (work - least);
    const bool has = block >= 0 && block < blocks;
    const unsigned before = __ballot_sync(kAllLanes, has) & ((1u << lane) - 1);
    const int with_more = with_at_least(work + 1);
    is_mine = has && number - with_more == __popc(before);
  } else {
    block = number;
    for (int other = 0; other < here; ++other) {
      const int its_others = __shfl_sync(kAllLanes, others, other);
      const int its_blocks = __shfl_sync(kAllLanes, blocks, other);
      if (its_others > others || (its_others == others && other < lane)) block -= its_blocks;
    }
    is_mine = block >= 0 && block < blocks;
  }
  const unsigned found = __ballot_sync(kAllLanes, is_mine);
  if (found == 0) return {-1, 0, 0};
  const int its_lane = __ffs(static_cast<int>(found)) - 1;
  return {first + its_lane, __shfl_sync(kAllLanes, block, its_lane),
          __shfl_sync(kAllLanes, blocks, its_lane)};
}

}  // namespace flashbench::kernels
