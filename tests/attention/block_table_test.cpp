#include "attention/block_table.h"

#include <gtest/gtest.h>

namespace flashbench {
namespace {

TEST(BlockTable, StartsWithoutPages) {
  const BlockTable table(2, 3, 7);
  EXPECT_EQ(table.requests(), 2);
  EXPECT_EQ(table.width(), 3);
  EXPECT_EQ(table.pages(), 7);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(table.data()[i], 2'147'480'000);
}

TEST(BlockTable, HasARowForEachRequest) {
  BlockTable table(2, 3, 7);
  table.at(1, 0) = 5;
  table.at(0, 2) = 6;
  EXPECT_EQ(table.data()[3], 5);
  EXPECT_EQ(table.data()[2], 6);
}

TEST(BlockTable, IdsDifferByEntriesShapeAndPool) {
  BlockTable table(2, 3, 7), other(2, 3, 7);
  EXPECT_EQ(table.id(), other.id());
  EXPECT_EQ(table, other);
  other.at(1, 1) = 0;
  EXPECT_NE(table.id(), other.id());
  EXPECT_NE(table.id(), BlockTable(3, 2, 7).id());
  EXPECT_NE(table.id(), table.in_pool_of(8).id());
  EXPECT_EQ(table.id().substr(0, 11), "7pages-2x3-");
}

}  // namespace
}  // namespace flashbench
