// Rows of one head that are processed together.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"

namespace flashbench::verify {

struct RowBlock {
  int64_t batch = 0, head = 0;
  std::vector<int64_t> rows;  // ascending, at least one
};

// Rows [0, length).
std::vector<int64_t> all_rows(int64_t length);

// Divide rows of one query head, or of one key head, into blocks.
void append_query_blocks(std::vector<RowBlock>& blocks, const Problem&, int64_t batch, int64_t head,
                         const std::vector<int64_t>& rows);
void append_key_blocks(std::vector<RowBlock>& blocks, int64_t batch, int64_t head,
                       const std::vector<int64_t>& rows);

// Every row of every query head, without padding.
std::vector<RowBlock> all_query_blocks(const Problem&);

// Tiles of the other side, with which a block is processed: rows [first, first + kTileRows), cut
// off at `end`.
inline constexpr int64_t kTileRows = 256;
RowBlock tile_at(int64_t batch, int64_t head, int64_t first, int64_t end);

// The keys from the first to the last that any of the block's rows sees.
RowRange seen_keys(const Problem& request, const RowBlock& queries);

// Whether any of these queries may see any of these keys.
bool meet(const Problem& request, const RowBlock& queries, const RowBlock& keys);

// Problem::query_index, as an index.
inline size_t query_index(const Problem& p, int64_t batch, int64_t head, int64_t row) {
  return static_cast<size_t>(p.query_index(batch, head, row));
}

}  // namespace flashbench::verify
