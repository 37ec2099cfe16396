#include "kernels/cpu/forward_work.h"

#include <algorithm>

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

// The K/V heads whose rows lie beside each other.
int64_t heads_beside(const Problem& p) {
  return p.key_layout() == Layout::bhsd ? 1 : p.kv_heads;
}

// How many of so many chunks have all `heads` that lie beside each other: memory is fastest from
// front to back. The others have one head each: threads that have ended early take them while
// others still compute, so that all end at about the same time. Where threads would have different
// numbers of whole chunks, they have as many as the fewest.
int64_t whole_chunks(int64_t chunks, int64_t heads, int threads) {
  constexpr int64_t kSingleHeadsPerThread = 4;
  if (threads == 1) return chunks;
  const int64_t single = (kSingleHeadsPerThread * threads + heads - 1) / heads;
  return std::max<int64_t>(0, chunks - single) / threads * threads;
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
      heads_(heads_beside(p)),
      chunks_(keys_, p.kv_heads / heads_, [](int64_t) { return kChunkKeys; }),
      whole_chunks_(whole_chunks(chunks_.size(), heads_, threads)),
      merges_(few_, p.q_heads, [](int64_t) { return kFewQueries; }),
      most_rows_(p.heads_per_kv_head() * few_.longest()) {}

int64_t ForwardWork::chunks() const {
  return whole_chunks_ + (chunks_.size() - whole_chunks_) * heads_;
}

KeyChunk ForwardWork::chunk(int64_t number) const {
  const bool whole = number < whole_chunks_;
  const int64_t single = number - whole_chunks_;
  const RowTile at = chunks_[whole ? number : whole_chunks_ + single / heads_];
  const int64_t first_head = at.head * heads_ + (whole ? 0 : single % heads_);
  const int64_t first_key = seen_[static_cast<size_t>(at.batch)].first + at.first;
  return {.batch = at.batch,
          .first_head = first_head,
          .heads = whole ? heads_ : 1,
          .keys = {first_key, first_key + at.rows},
          .first_result = results_.first_tile(at.batch, first_head) + at.first / kChunkKeys,
          .results_per_head = results_.tiles_of(at.batch)};
}

RowRange ForwardWork::results_of(int64_t batch, int64_t kv_head) const {
  const int64_t first = results_.first_tile(batch, kv_head);
  return {first, first + results_.tiles_of(batch)};
}

}  // namespace flashbench::kernels
