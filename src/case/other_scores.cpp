#include "case/other_scores.h"

#include <cstring>
#include <random>
#include <span>

namespace flashbench {

namespace {

// A copy of the tensor's memory with the signs of some rows flipped.
HostVector<std::byte> with_flipped_rows(const ConstTensorView& t, uint64_t seed) {
  const auto element = static_cast<size_t>(element_size(t.dtype));
  const auto row = static_cast<size_t>(t.head_dim) * element;
  HostVector<std::byte> copy(static_cast<size_t>(t.elements()) * element);
  std::memcpy(copy.data(), t.data, copy.size());
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < copy.size(); at += row) {
    if ((random() & 1) != 0) flip_signs(std::span(copy).subspan(at, row), element);
  }
  return copy;
}

}  // namespace

OtherScores::OtherScores(const Problem& problem, const Inputs& inputs, uint64_t seed,
                         const OracleBudget& budget, Device& device)
    : problem_(problem),
      budget_(budget),
      device_(device),
      q_(with_flipped_rows(inputs.q, seed)),
      k_(with_flipped_rows(key_view(inputs.k.data, problem), seed + 1)),
      inputs_(inputs) {
  inputs_.q.data = q_.data();
  inputs_.k.data = k_.data();
}

Verdict OtherScores::judge(const Storage& storage, const Outputs& outputs) {
  auto& oracle = oracles_[storage];
  if (oracle == nullptr) {
    oracle = std::make_unique<Oracle>(problem_, inputs_, storage, budget_, device_);
  }
  return oracle->judge(outputs);
}

}  // namespace flashbench
