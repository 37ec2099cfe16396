// A backward case's inputs with their heads rotated: each K/V head, with the query heads that share
// it, takes the place of the next; of one K/V head, each query head does. The outputs follow.
// Providers that kept the probabilities of a head, or something else of it, are wrong on them.
#pragma once

#include <vector>

#include "attention/host_memory.h"
#include "attention/tensors.h"

namespace flashbench {

// Of a backward problem.
class RotatedHeads {
 public:
  // Copies `inputs`, the case's on the host.
  RotatedHeads(const Problem&, const Inputs& inputs);

  const Inputs& inputs() const { return inputs_; }

  // Rotates dQ, dK and dV on the host, as they are for these inputs, back to the case's.
  void turn_back(const Outputs&) const;

 private:
  int64_t query_heads_, kv_heads_;  // by how many they are rotated
  std::vector<HostVector<std::byte>> copies_;
  Inputs inputs_;
};

// Whether the problem has several heads, so that rotated ones differ.
bool has_heads_to_rotate(const Problem&);

}  // namespace flashbench
