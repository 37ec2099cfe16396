// Requests of different lengths in the backward pass. Its workspace has rows for all of them behind
// each other, those of a request from a multiple of kRowPadding on. They are the rows of the
// queries that see a key, from which the pass starts, and then of the others.
#pragma once

#include <cstdint>

namespace flashbench::kernels::backward {

constexpr int kRowPadding = 128;  // lengths are rounded up to a multiple of this in the workspace

// Rows of the workspace for so many requests with so many rows.
constexpr int64_t workspace_rows(int64_t rows, int64_t requests) {
  return (rows / kRowPadding + requests) * kRowPadding;
}

struct Requests {
  const int *cu_seqlens_q, *cu_seqlens_k;  // [count + 1]
  int count;
  int q_len;      // of the longest
  int q_tokens;   // of all
  bool packed;    // rows of the tensors and of the logsumexp count through all requests
  bool causal;    // a query sees no key after its own
  bool top_left;  // its own key has its number; else the last query's is the last key
};

}  // namespace flashbench::kernels::backward
