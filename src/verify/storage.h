// The precision of what a provider computes on the way.
#pragma once

#include "attention/accumulator.h"
#include "attention/problem.h"

namespace flashbench {

struct Storage {
  Dtype scores;             // S and, backward, dP (Provider::scores_dtype)
  Dtype partials;           // O of a part of the keys, before the parts are merged (partials_dtype)
  Accumulator accumulator;  // of its products (Provider::accumulator)

  Storage(Dtype of_scores = Dtype::fp32, Dtype of_partials = Dtype::fp32,
          const Accumulator& of_products = {})
      : scores(of_scores), partials(of_partials), accumulator(of_products) {}
  auto operator<=>(const Storage&) const = default;
};

}  // namespace flashbench
