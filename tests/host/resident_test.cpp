#include "host/resident.h"

#include <gtest/gtest.h>

#include <vector>

namespace flashbench {
namespace {

TEST(Memory, ThePeakRemembersWhatWasFreed) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  reset_peak_resident();
  const int64_t before = resident_bytes();
  ASSERT_GT(before, 0);
  { std::vector<char> block(kBytes, 1); }
  EXPECT_GE(peak_resident_bytes(), before + kBytes * 9 / 10);
}

}  // namespace
}  // namespace flashbench
