// Batches of requests of different lengths, for choices on the host. These know how many requests
// and rows there are, but no single lengths, which a captured launch may be replayed with others
// of.
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace flashbench::kernels {

// Whether the variants by request serve a problem, which also know windows and pages.
inline bool is_by_request(const Problem& p) {
  return p.lengths || p.has_window() || p.is_paged();
}

// How many blocks so many requests with so many rows have at most; see requests.cuh.
constexpr int64_t block_slots(int64_t rows, int64_t requests, int64_t block_rows) {
  return rows / block_rows + requests;
}

// A batch of equal lengths, those that the requests have on average. The problem itself if its
// lengths are equal.
Problem average_request(const Problem&);

// One sequence with the queries and keys of all requests, causal: kernels begin with the longest
// requests, whatever the mask.
Problem all_requests_as_one(const Problem&);

}  // namespace flashbench::kernels
