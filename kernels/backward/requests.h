// Requests of different lengths in the backward pass, or with windows. Its workspace has rows for
// all of them behind each other, those of a request from a multiple of kRowPadding on. They are the
// rows of the queries that see a key, from which the pass starts, and then of the others.
#pragma once

#include <cstdint>

namespace flashbench::kernels::backward {

constexpr int kRowPadding = 128;  // lengths are rounded up to a multiple of this in the workspace

// Rows of the workspace for so many requests with so many rows.
constexpr int64_t workspace_rows(int64_t rows, int64_t requests) {
  return (rows / kRowPadding + requests) * kRowPadding;
}

// Where the rows of each request begin, those of queries or of keys.
struct RowStarts {
  const int* cu_rows;  // [count + 1]; null: every request has `length` rows
  int length;          // of the longest
};

struct Requests {
  RowStarts queries, keys;
  int count;
  int q_tokens;     // of all
  bool packed;      // rows of the tensors and of the logsumexp count through all requests
  bool top_left;    // a query's own key has its number; else the last query's is the last key
  int left, right;  // keys that a query sees before and after its own
};

}  // namespace flashbench::kernels::backward
