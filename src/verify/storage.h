// The dtypes in which a provider keeps in memory what it computes on the way.
#pragma once

#include "attention/problem.h"

namespace flashbench {

struct Storage {
  Dtype scores;    // S and, backward, dP (Provider::scores_dtype)
  Dtype partials;  // O of a part of the keys, before the parts are merged (partials_dtype)

  Storage(Dtype of_scores = Dtype::fp32, Dtype of_partials = Dtype::fp32)
      : scores(of_scores), partials(of_partials) {}
  auto operator<=>(const Storage&) const = default;
};

}  // namespace flashbench
