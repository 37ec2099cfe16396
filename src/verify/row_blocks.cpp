#include "verify/row_blocks.h"

#include <algorithm>
#include <numeric>

namespace flashbench::verify {

namespace {

constexpr int64_t kBlockRows = 256;
constexpr int64_t kMinBlockRows = 16;
constexpr int64_t kMaxStripElements = int64_t{1} << 22;  // 32 MiB of fp64 scores per thread

void append_blocks(std::vector<RowBlock>& blocks, int64_t batch, int64_t head,
                   const std::vector<int64_t>& rows, int64_t block_rows) {
  const auto total = static_cast<int64_t>(rows.size());
  for (int64_t first = 0; first < total; first += block_rows) {
    const int64_t last = std::min(first + block_rows, total);
    blocks.push_back({batch, head, {rows.begin() + first, rows.begin() + last}});
  }
}

}  // namespace

std::vector<int64_t> all_rows(int64_t length) {
  std::vector<int64_t> rows(static_cast<size_t>(length));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// The forward pass holds whole rows of scores, so that blocks of long rows have fewer rows.
void append_query_blocks(std::vector<RowBlock>& blocks, const Problem& problem, int64_t batch,
                         int64_t head, const std::vector<int64_t>& rows) {
  append_blocks(blocks, batch, head, rows,
                std::clamp(kMaxStripElements / std::max<int64_t>(problem.kv_len, 1), kMinBlockRows,
                           kBlockRows));
}

void append_key_blocks(std::vector<RowBlock>& blocks, int64_t batch, int64_t head,
                       const std::vector<int64_t>& rows) {
  append_blocks(blocks, batch, head, rows, kBlockRows);
}

std::vector<RowBlock> all_query_blocks(const Problem& problem) {
  std::vector<RowBlock> blocks;
  for (int64_t batch = 0; batch < problem.batch; ++batch) {
    const std::vector<int64_t> rows = all_rows(problem.q_len_of(batch));
    for (int64_t head = 0; head < problem.q_heads; ++head) {
      append_query_blocks(blocks, problem, batch, head, rows);
    }
  }
  return blocks;
}

RowBlock tile_at(int64_t batch, int64_t head, int64_t first, int64_t end) {
  RowBlock tile{batch, head,
                std::vector<int64_t>(static_cast<size_t>(std::min(kTileRows, end - first)))};
  std::iota(tile.rows.begin(), tile.rows.end(), first);
  return tile;
}

RowRange seen_keys(const Problem& problem, const RowBlock& queries) {
  return {problem.visible_keys(queries.rows.front()).first,
          problem.visible_keys(queries.rows.back()).end};
}

bool meet(const Problem& problem, const RowBlock& queries, const RowBlock& keys) {
  const RowRange seen = seen_keys(problem, queries);
  return seen.first <= keys.rows.back() && keys.rows.front() < seen.end;
}

}  // namespace flashbench::verify
