// K and V of all tokens in the memory of a rank, and its queries against them.
#pragma once

#include <vector>

#include "providers/split/rank.h"

namespace flashbench {

class AllKeys {
 public:
  explicit AllKeys(Rank&);

  // Pulls them, chunk after chunk. Returns what to wait for, by chunk.
  std::vector<int64_t> pull(Rank&, const Inputs&) const;

  // The keys from the first on that the queries of a chunk see.
  static int64_t keys_of(const Rank&, RowRange queries);

  // Computes the rank's first or second chunk of queries: O and logsumexp; dQ, and its part of dK
  // and dV, rows of fp32 for each of keys_of(). A chunk without tokens is nothing.
  void forward(const Rank&, size_t chunk, const Inputs&, const Outputs&,
               const kernels::KeyGate* gate = nullptr) const;
  void backward(const Rank&, size_t chunk, const Inputs&, const TensorView& dq,
                const TensorView& dk, const TensorView& dv,
                const kernels::KeyGate* gate = nullptr) const;

 private:
  RankTensor k_, v_;
  std::array<RankTensor, 2> logsumexp_;  // of the rank's chunks
};

}  // namespace flashbench
