#include "attention/lengths.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace flashbench {
namespace {

TEST(Lengths, AreRowsBehindEachOther) {
  const Lengths lengths({{3, 5}, {0, 7}, {2, 0}});
  EXPECT_EQ(lengths.requests(), 3);
  EXPECT_EQ(lengths.queries().starts(), (std::vector<int64_t>{0, 3, 3, 5}));
  EXPECT_EQ(lengths.keys().starts(), (std::vector<int64_t>{0, 5, 12, 12}));
  EXPECT_EQ(lengths.queries().total(), 5);
  EXPECT_EQ(lengths.keys().longest(), 7);
  EXPECT_EQ(lengths[1], (RequestLengths{0, 7}));
}

TEST(Lengths, TellTheRequestOfARow) {
  const RequestRows rows({3, 0, 0, 2, 0});
  for (int64_t row = 0; row < 5; ++row) EXPECT_EQ(rows.request_of(row), row < 3 ? 0 : 3) << row;
}

// Part of keys: it must not change.
TEST(Lengths, HaveAnIdThatStays) {
  EXPECT_EQ(Lengths({{1, 1}}).id(), "1q-1kv-04d52e459b105565");
}

TEST(Lengths, HaveDifferentIdsWhereAnythingDiffers) {
  std::set<std::string> ids;
  for (const std::vector<RequestLengths>& requests : {std::vector<RequestLengths>{{1, 2}, {3, 4}},
                                                      {{3, 4}, {1, 2}},
                                                      {{3, 2}, {1, 4}},
                                                      {{4, 6}},
                                                      {{1, 2}, {3, 4}, {0, 0}},
                                                      {{2, 1}, {4, 3}}}) {
    EXPECT_TRUE(ids.insert(Lengths(requests).id()).second);
  }
}

TEST(Lengths, AreEqualByValue) {
  const auto a = std::make_shared<const Lengths>(std::vector<RequestLengths>{{1, 2}});
  const auto b = std::make_shared<const Lengths>(std::vector<RequestLengths>{{1, 2}});
  const auto c = std::make_shared<const Lengths>(std::vector<RequestLengths>{{1, 3}});
  const std::shared_ptr<const Lengths> none;
  EXPECT_TRUE(a == b);
  EXPECT_FALSE(a == c);
  EXPECT_FALSE(a == none);
  EXPECT_FALSE(none == a);
  EXPECT_TRUE(none == nullptr);
}

}  // namespace
}  // namespace flashbench
