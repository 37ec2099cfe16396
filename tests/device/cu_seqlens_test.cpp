#include "device/cu_seqlens.h"

#include <gtest/gtest.h>

#include <vector>

namespace flashbench {
namespace {

Problem with_lengths(const std::vector<RequestLengths>& requests) {
  Problem p;
  p.set_lengths(std::make_shared<const Lengths>(requests));
  return p;
}

TEST(CuSeqlens, CountTheRowsBeforeEachRequest) {
  const auto device = make_host_device(1);
  const CuSeqlens starts(*device, with_lengths({{2, 4}, {0, 1}, {5, 0}}));
  const auto numbers = [](const int32_t* first) { return std::vector<int32_t>(first, first + 4); };
  EXPECT_EQ(numbers(starts.queries()), (std::vector<int32_t>{0, 2, 2, 7}));
  EXPECT_EQ(numbers(starts.keys()), (std::vector<int32_t>{0, 4, 5, 5}));
  EXPECT_EQ(device->used().workspace, 0);
}

TEST(CuSeqlens, AreNullWhereLengthsAreEqual) {
  const auto device = make_host_device(1);
  const CuSeqlens starts(*device, Problem());
  EXPECT_EQ(starts.queries(), nullptr);
  EXPECT_EQ(starts.keys(), nullptr);
  EXPECT_EQ(device->used().total(), 0);
}

TEST(CuSeqlens, HaveALargestTotal) {
  constexpr int64_t kHalf = int64_t{1} << 30;
  EXPECT_EQ(CuSeqlens::why_none(Problem()), std::nullopt);
  EXPECT_EQ(CuSeqlens::why_none(with_lengths({{1, kHalf}, {1, kHalf - 1}})), std::nullopt);
  EXPECT_NE(CuSeqlens::why_none(with_lengths({{1, kHalf}, {1, kHalf}})), std::nullopt);
  EXPECT_NE(CuSeqlens::why_none(with_lengths({{kHalf, 1}, {kHalf, 1}})), std::nullopt);
}

}  // namespace
}  // namespace flashbench
