// Every block of every request is in one slot, however many requests there are and whichever are
// empty, and those of a request come in order.
#include "kernels/common/requests.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda.h"
#include "kernels/common/requests.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/row_starts.h"

namespace flashbench::kernels {
namespace {

constexpr int kBlock = 80;

// A thread block, a warp, for each slot.
__global__ void slots_kernel(const int* cu_rows, const int* cu_others, int requests, bool causal,
                             RequestBlock* found) {
  const RequestBlock block =
      block_in_slot<kBlock>(cu_rows, cu_others, requests, static_cast<int>(blockIdx.x), causal);
  if (threadIdx.x == 0) found[blockIdx.x] = block;
}

void expect_every_block_once(const std::vector<int>& rows, const std::vector<RequestBlock>& found) {
  std::vector<std::vector<int>> blocks(rows.size());
  for (const RequestBlock& one : found) {
    if (one.request < 0) continue;
    const auto request = static_cast<size_t>(one.request);
    EXPECT_EQ(one.blocks, (rows.at(request) + kBlock - 1) / kBlock);
    blocks.at(request).push_back(one.block);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    SCOPED_TRACE(std::to_string(rows.size()) + " requests, " + std::to_string(i));
    std::vector<int> expected;
    for (int block = 0; block * kBlock < rows[i]; ++block) expected.push_back(block);
    EXPECT_EQ(blocks[i], expected);
  }
}

TEST(CudaRequests, EveryBlockHasOneSlot) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  std::mt19937 random(1);
  for (const int requests : {1, 2, 9, 31, 32, 33, 64, 65, 991, 1025}) {
    std::vector<int> rows, others;
    for (int i = 0; i < requests; ++i) {
      const int kinds[] = {0, 1, kBlock, kBlock + 1, static_cast<int>(random() % 1000)};
      rows.push_back(kinds[random() % 5]);
      others.push_back(static_cast<int>(random() % 2000));
    }
    const OnGpu<int> cu_rows(starts(rows)), cu_others(starts(others));
    const auto slots = static_cast<int>(block_slots(starts(rows).back(), requests, kBlock));
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(causal ? "causal" : "no mask");
      const OnGpu<RequestBlock> found(static_cast<size_t>(slots));
      run(slots_kernel, slots, 32, 0, cu_rows.data(), cu_others.data(), requests, causal,
          found.data());
      expect_every_block_once(rows, found.to_host());
    }
  }
}

}  // namespace
}  // namespace flashbench::kernels
