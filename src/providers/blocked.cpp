// Unfused attention on a GPU with K and V in blocks. It processes all query rows at once, with
// cuBLAS products, the scores of one block in memory, and a kernel that updates the online softmax
// after each block. Memory grows linearly with the length, not with its square; traffic does not
// shrink. Forward only.
//
// In a block that some queries see, V must be finite even at masked keys, because 0 * NaN is NaN.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/naive/blocked_update.h"
#include "providers/cuda_products.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

using kernels::BlockedState;
using kernels::kBlockedKeys;
using kernels::ScoreBlock;

constexpr int64_t kFloat = sizeof(float);

// Keys [first_key, first_key + keys), and the queries [first_query, first_query + queries), which
// include all that see any of these keys. The first block also initialises the state that later
// blocks update.
struct KeyBlock {
  int64_t first_key, keys;
  int64_t first_query, queries;
};

std::vector<KeyBlock> key_blocks(const Problem& p) {
  const RowRange seen = p.seen_keys();
  std::vector<KeyBlock> blocks;
  for (int64_t key = seen.first; key < seen.end; key += kBlockedKeys) {
    const int64_t keys = std::min(kBlockedKeys, seen.end - key);
    const RowRange queries{p.queries_that_see(key).first, p.queries_that_see(key + keys - 1).end};
    blocks.push_back({key, keys, queries.first, queries.size()});
  }
  blocks.front().queries = p.q_len - blocks.front().first_query;
  return blocks;
}

// The scores of the longest block, in the problem's dtype.
ScoreBlock block_scores(const Problem& p) {
  ScoreBlock scores = ScoreBlock::whole(p, p.dtype);
  scores.row_stride = std::min(scores.row_stride, kBlockedKeys);
  scores.head_stride = p.q_len * scores.row_stride;
  return scores;
}

// Sizes of the parts of the workspace in bytes, each a multiple of 256.
struct Sizes {
  explicit Sizes(const Problem& p) {
    const auto padded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
    const ScoreBlock block = block_scores(p);
    scores = padded(block.heads * block.head_stride * element_size(p.dtype));
    o = padded(p.output_elements() * kFloat);
    rows = padded(p.query_rows() * kFloat);
  }
  int64_t scores, o, rows;

  int64_t all() const { return scores + o + 2 * rows; }
};

class BlockedForward final : public Session {
 public:
  BlockedForward(const Problem& problem, Device& device)
      : p_(problem),
        stream_(static_cast<cudaStream_t>(device.stream().cuda)),
        blocks_(key_blocks(problem)),
        all_(block_scores(problem)),
        products_(device, p_.batch, p_.q_heads) {
    const Sizes size(problem);
    workspace_ = device.allocate(static_cast<size_t>(size.all()), MemoryUse::workspace);
    auto* const start = workspace_.as<std::byte>();
    scores_ = start;
    state_.o = reinterpret_cast<float*>(start + size.scores);
    state_.maximum = reinterpret_cast<float*>(start + size.scores + size.o);
    state_.sum = reinterpret_cast<float*>(start + size.scores + size.o + size.rows);
    state_.head_dim = p_.value_dim();
  }

  void run(const Inputs& in, const Outputs& out) override {
    const HeadMatrices scores{scores_, p_.dtype, p_.q_heads * all_.head_stride, all_.head_stride,
                              all_.row_stride};
    const HeadMatrices o = head_matrices(dense_view<const void>(
        state_.o, Dtype::fp32, Layout::bhsd, p_.batch, p_.q_heads, p_.q_len, p_.value_dim()));
    const int64_t group = p_.heads_per_kv_head();
    for (const KeyBlock& block : blocks_) {
      const bool first_block = is_first(block);
      const HeadMatrices block_scores = scores.from(block.first_query);
      Gemm scores_gemm;
      scores_gemm.transpose_b = true;
      scores_gemm.rows = block.queries;
      scores_gemm.columns = block.keys;
      scores_gemm.depth = p_.head_dim;
      scores_gemm.alpha = p_.softmax_scale() / all_.unit;
      products_.multiply(scores_gemm, p_.q_heads, head_matrices(in.q).from(block.first_query),
                         head_matrices(in.k).from(block.first_key).shared_by(group), block_scores);
      kernels::blocked_update(rows_of(block), scores_, p_.dtype, state_, first_block, stream_);
      Gemm o_gemm;
      o_gemm.rows = block.queries;
      o_gemm.columns = p_.value_dim();
      o_gemm.depth = block.keys;
      o_gemm.beta = first_block ? 0 : 1;
      products_.multiply(o_gemm, p_.q_heads, block_scores,
                         head_matrices(in.v).from(block.first_key).shared_by(group),
                         o.from(block.first_query));
    }
    kernels::blocked_finish(state_, all_.unit, blocks_.front().first_query, out.o, out.logsumexp,
                            stream_);
  }

  std::string kernel() const override {
    return fmt::format("blocked_forward cuBLAS, {} keys, scores in {}", kBlockedKeys,
                       name(p_.dtype));
  }

  // For each block: the operands of both products; the scores, written and read between them;
  // maximum and sum, read and written; O, read and written by its product. O and L once more at the
  // end. Rescaling of O is not counted, because it depends on the values.
  std::optional<int64_t> requested_bytes() const override {
    const int64_t element = element_size(p_.dtype), heads = p_.batch * p_.q_heads;
    int64_t bytes = 0;
    for (const KeyBlock& block : blocks_) {
      const int64_t query_elements = heads * block.queries * p_.head_dim;
      const int64_t output_elements = heads * block.queries * p_.value_dim();
      const int64_t kv_elements =
          p_.batch * p_.kv_heads * block.keys * (p_.head_dim + p_.value_dim());
      const int64_t passes = is_first(block) ? 1 : 2;  // over O and the statistics
      bytes += element * (query_elements + kv_elements) +
               4 * element * heads * block.queries * block.keys +
               passes * kFloat * (output_elements + 2 * heads * block.queries);
    }
    return bytes + (kFloat + element) * p_.output_elements() + 3 * kFloat * p_.query_rows();
  }

 private:
  bool is_first(const KeyBlock& block) const { return &block == &blocks_.front(); }

  ScoreBlock rows_of(const KeyBlock& block) const {
    ScoreBlock rows = all_;
    rows.first = block.first_query;
    rows.rows = block.queries;
    rows.keys = block.keys;
    rows.band.first_from -= block.first_key;
    rows.band.end_from -= block.first_key;
    return rows;
  }

  Problem p_;
  cudaStream_t stream_;
  std::vector<KeyBlock> blocks_;
  ScoreBlock all_;
  HeadProducts products_;
  Buffer workspace_;
  void* scores_;
  BlockedState state_;
};

class BlockedProvider final : public Provider {
 public:
  std::string_view name() const override { return "blocked"; }
  std::string_view description() const override {
    return "K and V in blocks, unfused: cuBLAS products, online softmax state in memory";
  }
  DeviceKind device_kind() const override { return DeviceKind::cuda; }
  Dtype scores_dtype(const Problem& p) const override { return p.dtype; }
  std::vector<std::string_view> optional_axes() const override {
    return {"window_left", "window_right", "head_dim_v"};
  }

  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& device) const override {
    if (p.pass == Pass::backward) return "it has no backward pass";
    return why_no_products_of_scores(p, device);
  }
  int64_t workspace_bytes(const Problem& p, const DeviceInfo&) const override {
    return HeadProducts::workspace_bytes(p.batch, p.q_heads) + Sizes(p).all();
  }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    return std::make_unique<BlockedForward>(p, device);
  }
};

}  // namespace

std::unique_ptr<Provider> make_blocked_provider() {
  return std::make_unique<BlockedProvider>();
}

}  // namespace flashbench
