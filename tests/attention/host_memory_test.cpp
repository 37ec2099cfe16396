#include "attention/host_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace flashbench {
namespace {

TEST(HostMemory, HoldsWhatIsWritten) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{5} << 20}) {
    HostVector<char> bytes(count);
    ASSERT_EQ(bytes.size(), count);
    std::fill(bytes.begin(), bytes.end(), 'x');
    EXPECT_EQ(bytes, HostVector<char>(count, 'x'));
    const HostArray<double> doubles = make_host_array<double>(count);
    for (size_t i = 0; i < count; ++i) doubles[i] = 1.5;
  }
}

TEST(HostMemory, LargeBlocksBeginAtAHugePage) {
  const HostArray<char> large = make_host_array<char>((size_t{4} << 20) + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.get()) % (uintptr_t{2} << 20), 0u);
}

TEST(HostMemory, WhatIsTooLargeIsBadAlloc) {
  EXPECT_THROW(allocate_host(std::numeric_limits<size_t>::max() / 4), std::bad_alloc);
}

}  // namespace
}  // namespace flashbench
