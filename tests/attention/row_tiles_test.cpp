#include "attention/row_tiles.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace flashbench {
namespace {

// The rows of each head that the tiles have, which must follow each other.
std::map<std::pair<int64_t, int64_t>, int64_t> rows_of(const RowTiles& tiles, int64_t tile_rows) {
  std::map<std::pair<int64_t, int64_t>, int64_t> rows;
  for (int64_t item = 0; item < tiles.size(); ++item) {
    const RowTile tile = tiles[item];
    int64_t& so_far = rows[{tile.batch, tile.head}];
    EXPECT_EQ(tile.first, so_far);
    EXPECT_GT(tile.rows, 0);
    EXPECT_LE(tile.rows, tile_rows);
    so_far += tile.rows;
  }
  return rows;
}

auto of(int64_t tile_rows) {
  return [=](int64_t) { return tile_rows; };
}

TEST(RowTiles, CoverEqualHeads) {
  for (const int64_t tile_rows : {1, 3, 10, 64}) {
    const auto rows = rows_of(RowTiles(2, 3, 10, tile_rows), tile_rows);
    EXPECT_EQ(rows.size(), 6u);
    for (const auto& [head, count] : rows) EXPECT_EQ(count, 10);
  }
}

TEST(RowTiles, CoverTheRowsOfEachRequest) {
  const RequestRows requests({0, 10, 1, 0, 7, 0});
  for (const int64_t tile_rows : {1, 3, 10, 64}) {
    const auto rows = rows_of(RowTiles(requests, 2, of(tile_rows)), tile_rows);
    EXPECT_EQ(rows.size(), 6u);
    for (const auto& [head, count] : rows) EXPECT_EQ(count, requests.count(head.first));
  }
  const RequestRows none({0, 0});
  EXPECT_EQ(RowTiles(none, 2, of(4)).size(), 0);
}

TEST(RowTiles, GoFromLastToFirstWithinAHead) {
  const RequestRows requests({5, 9});
  const RowTiles tiles(requests, 2, of(4));
  ASSERT_EQ(tiles.size(), 2 * 2 + 2 * 3);
  for (int64_t item = 0; item < 2; ++item) {
    EXPECT_EQ(tiles.last_first(item).first, tiles[1 - item].first);
    EXPECT_EQ(tiles.last_first(item).rows, tiles[1 - item].rows);
  }
  EXPECT_EQ(tiles.last_first(4).first, 8);
  EXPECT_EQ(tiles.last_first(4).rows, 1);
  EXPECT_EQ(tiles.last_first(4).batch, 1);
}

TEST(RowTiles, MayDifferByRequest) {
  const RequestRows requests({5, 9, 0});
  const RowTiles tiles(requests, 1, [](int64_t rows) { return rows == 5 ? 2 : 100; });
  ASSERT_EQ(tiles.size(), 3 + 1);
  EXPECT_EQ(tiles[2].rows, 1);
  EXPECT_EQ(tiles[3].rows, 9);
}

}  // namespace
}  // namespace flashbench
