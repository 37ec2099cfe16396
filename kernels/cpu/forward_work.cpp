#include "kernels/cpu/forward_work.h"

namespace flashbench::kernels {

namespace {

bool is_few(int64_t queries) {
  return queries <= kFewQueries;
}

// of(b) of the requests with few queries, or of the others; 0 for the rest.
template <typename Of>
RequestRows rows_where(const Problem& p, bool few, const Of& of) {
  std::vector<int64_t> counts;
  for (int64_t b = 0; b < p.batch; ++b) {
    counts.push_back(is_few(p.q_len_of(b)) == few ? of(b) : 0);
  }
  return RequestRows(counts);
}

std::vector<RowRange> seen_keys(const Problem& p) {
  if (!p.lengths) return std::vector<RowRange>(static_cast<size_t>(p.batch), p.seen_keys());
  std::vector<RowRange> seen;
  for (int64_t b = 0; b < p.batch; ++b) {
    seen.push_back(is_few(p.q_len_of(b)) ? p.request(b).seen_keys() : RowRange{});
  }
  return seen;
}

// In memory, the heads of a row of K may lie beside each other. A chunk has as many of them as
// leave each thread a few chunks.
int64_t choose_heads(const Problem& p, int64_t results, int threads) {
  constexpr int64_t kChunksPerThread = 4;
  if (p.key_layout() == Layout::bhsd) return 1;
  int64_t heads = p.kv_heads;
  while (heads > 1 && (p.kv_heads % heads != 0 || results / heads < kChunksPerThread * threads)) {
    --heads;
  }
  return heads;
}

}  // namespace

ForwardWork::ForwardWork(const Problem& p, int threads)
    : tile_(choose_tile(p, threads)),
      seen_(seen_keys(p)),
      many_(rows_where(p, false, [&](int64_t b) { return p.q_len_of(b); })),
      few_(rows_where(p, true, [&](int64_t b) { return p.q_len_of(b); })),
      keys_(rows_where(p, true, [&](int64_t b) { return seen_[static_cast<size_t>(b)].size(); })),
      tiles_(many_, p.q_heads, [this](int64_t) { return tile_.queries; }),
      results_(keys_, p.kv_heads, [](int64_t) { return kChunkKeys; }),
      heads_per_chunk_(choose_heads(p, results_.size(), threads)),
      chunks_(keys_, p.kv_heads / heads_per_chunk_, [](int64_t) { return kChunkKeys; }),
      merges_(few_, p.q_heads, [](int64_t) { return kFewQueries; }),
      most_rows_(p.heads_per_kv_head() * few_.longest()) {}

KeyChunk ForwardWork::chunk(int64_t number) const {
  const RowTile at = chunks_[number];
  const int64_t first_head = at.head * heads_per_chunk_;
  const int64_t first_key = seen_[static_cast<size_t>(at.batch)].first + at.first;
  return {.batch = at.batch,
          .first_head = first_head,
          .heads = heads_per_chunk_,
          .keys = {first_key, first_key + at.rows},
          .first_result = results_.first_tile(at.batch, first_head) + at.first / kChunkKeys,
          .results_per_head = results_.tiles_of(at.batch)};
}

RowRange ForwardWork::results_of(int64_t batch, int64_t kv_head) const {
  const int64_t first = results_.first_tile(batch, kv_head);
  return {first, first + results_.tiles_of(batch)};
}

}  // namespace flashbench::kernels
