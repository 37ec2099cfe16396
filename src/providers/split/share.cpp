// The work of one rank on one device, while the others are idle.
#include <algorithm>

#include "providers/split/algorithm.h"
#include "providers/split/all_keys.h"
#include "providers/split/key_part.h"

namespace flashbench {

namespace {

// Of a rank's queries, with all keys that they see; or of all queries, with its keys.
double flops_of(const Rank& rank) {
  if (rank.whole().split == Split::keys) {
    const Problem part = KeySplit::of(rank.whole()).part(rank.number());
    return part.kv_len == 0 ? 0 : part.flops();
  }
  double flops = 0;
  for (const RowRange rows : rank.own_rows()) {
    if (rows.empty()) continue;
    flops += rank.block(rows.size(), AllKeys::keys_of(rank, rows), rank.causal()).flops();
  }
  return flops;
}

class ShareOfTokens final : public SplitAlgorithm {
 public:
  explicit ShareOfTokens(Rank& rank) : number_(rank.number()), keys_(rank) {
    const Problem& p = rank.whole();
    if (p.pass == Pass::forward) return;
    dk_ = rank.tensor(Dtype::fp32, p.kv_heads, p.kv_len, p.head_dim);
    dv_ = rank.tensor(Dtype::fp32, p.kv_heads, p.kv_len, p.value_dim());
  }

  void run(Rank& rank, const Inputs& in, const Outputs& out) override {
    if (rank.number() != number_) return;
    rank.wait(keys_.pull(rank, in).back());
    for (size_t i = 0; i < 2; ++i) {
      if (rank.whole().pass == Pass::forward) {
        keys_.forward(rank, i, in, out);
      } else {
        keys_.backward(rank, i, in, out.dq, dk_.view(), dv_.view());
      }
    }
  }

 private:
  int number_;
  AllKeys keys_;
  RankTensor dk_, dv_;
};

class ShareOfKeys final : public SplitAlgorithm {
 public:
  explicit ShareOfKeys(Rank& rank)
      : number_(rank.number()), part_(rank), results_(KeyPart::results(rank)) {}

  void run(Rank& rank, const Inputs& in, const Outputs&) override {
    if (rank.number() != number_) return;
    part_.compute(rank, in, results_.rows());
  }

 private:
  int number_;
  KeyPart part_;
  KeyPart::Results results_;
};

}  // namespace

std::unique_ptr<SplitAlgorithm> make_share(const Ranks& ranks) {
  Rank& busiest = **std::ranges::max_element(
      ranks, {}, [](const std::unique_ptr<Rank>& rank) { return flops_of(*rank); });
  if (busiest.whole().split == Split::keys) return std::make_unique<ShareOfKeys>(busiest);
  return std::make_unique<ShareOfTokens>(busiest);
}

}  // namespace flashbench
