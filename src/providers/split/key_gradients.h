// dK and dV of tokens that other ranks have, until they come home.
#pragma once

#include <vector>

#include "providers/split/algorithm.h"

namespace flashbench {

// Whether some query of the rank `other` sees a key of this chunk.
bool sees_keys(const Rank&, int other, int chunk);

class KeyGradients {
 public:
  explicit KeyGradients(const Ranks&);

  void clear(const Rank&);

  // Adds what a rank's queries contribute to these keys: rows of fp32.
  void add(const Rank&, RowRange keys, const TensorView& dk, const TensorView& dv);

  // When all ranks are done: pulls the sums of the others for the rank's own tokens, adds them in
  // the order of the ranks, whoever was first, and writes dK and dV. `step`: which one this is.
  void bring_home(Rank&, const Outputs&, RankStep step);

 private:
  struct OfRank {
    RankTensor dk, dv;              // of all tokens
    RankTensor other_dk, other_dv;  // of a chunk, from another rank
    RankTensor total_dk, total_dv;  // of a chunk
  };
  std::vector<OfRank> ranks_;
};

}  // namespace flashbench
