// Builds the cases of the adversarial suite whose requests have lengths of their own.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "plan/config.h"

namespace flashbench {

using Requests = std::vector<RequestLengths>;

// Cases in every combination of masks and layouts, with the dtypes by turns.
class LengthsCases {
 public:
  std::vector<Case> take() && { return std::move(cases_); }

  // What a request must not read from its neighbours shows best in one hot's O; that has no
  // counterpart backward.
  LengthsCases& add(const Requests& requests) {
    add(Pass::forward, Distribution::one_hot, requests);
    return add(Pass::backward, Distribution::normal, requests);
  }

  LengthsCases& add(Pass pass, Distribution distribution, const Requests& requests) {
    const auto lengths = std::make_shared<const Lengths>(requests);
    for (const Mask mask : masks_) {
      for (const Layout layout : layouts_) {
        Case item = base_;
        item.problem.pass = pass;
        item.problem.mask = mask;
        item.problem.layout = layout;
        // One on from row to row of layouts, so that each layout meets each dtype.
        item.problem.dtype =
            kUnscaledDtypes[(cases_.size() + cases_.size() / 3) % kUnscaledDtypes.size()];
        item.problem.set_lengths(lengths);
        item.inputs.distribution = distribution;
        cases_.push_back(item);
      }
    }
    return *this;
  }

  LengthsCases& with(std::vector<Mask> masks, std::vector<Layout> layouts) {
    masks_ = std::move(masks);
    layouts_ = std::move(layouts);
    return *this;
  }

  Case& base() { return base_; }

 private:
  static Case grouped_heads() {
    Case item;
    item.problem.q_heads = 4;
    item.problem.kv_heads = 2;
    return item;
  }

  Case base_ = grouped_heads();
  std::vector<Mask> masks_{kMasks.begin(), kMasks.end()};
  std::vector<Layout> layouts_{kLayouts.begin(), kLayouts.end()};
  std::vector<Case> cases_;
};

}  // namespace flashbench
