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

// The block in a slot. `cu_rows` are where the rows of the requests begin, [requests + 1]. Of 32
// requests, those that have the most rows by `cu_costs` come first. Called by whole warps.
template <int kBlock>
__device__ __forceinline__ RequestBlock block_in_slot(const int* cu_rows, const int* cu_costs,
                                                      int requests, int slot) {
  constexpr unsigned kAllLanes = ~0u;
  constexpr int kGroup = 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto first_slot = [&](int request) { return cu_rows[request] / kBlock + request; };

  // The last group of requests whose first slot is not behind this one: it is among `groups` groups
  // from `group` on.
  int group = 0;
  for (int groups = (requests + kGroup - 1) / kGroup; groups > 1;) {
    const int step = (groups + 31) / 32, offset = lane * step;
    const bool starts = offset < groups && first_slot((group + offset) * kGroup) <= slot;
    const int last = (__popc(__ballot_sync(kAllLanes, starts)) - 1) * step;
    group += last;
    groups = min(step, groups - last);
  }

  const int first = group * kGroup, here = min(kGroup, requests - first);
  int blocks = 0, cost = -1;
  if (lane < here) {
    blocks = (cu_rows[first + lane + 1] - cu_rows[first + lane] + kBlock - 1) / kBlock;
    cost = cu_costs[first + lane + 1] - cu_costs[first + lane];
  }
  int block = slot - first_slot(first);
  for (int other = 0; other < here; ++other) {
    const int its_cost = __shfl_sync(kAllLanes, cost, other);
    const int its_blocks = __shfl_sync(kAllLanes, blocks, other);
    if (its_cost > cost || (its_cost == cost && other < lane)) block -= its_blocks;
  }
  const unsigned found = __ballot_sync(kAllLanes, block >= 0 && block < blocks);
  if (found == 0) return {-1, 0, 0};
  const int its_lane = __ffs(static_cast<int>(found)) - 1;
  return {first + its_lane, __shfl_sync(kAllLanes, block, its_lane),
          __shfl_sync(kAllLanes, blocks, its_lane)};
}

}  // namespace flashbench::kernels
