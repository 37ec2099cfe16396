// The requests of a batch on the device, in the backward pass.
#pragma once

#include <cstdint>

#include "kernels/backward/requests.h"
#include "kernels/common/requests.cuh"

namespace flashbench::kernels::backward {

// The first row of a request, counted through all requests.
__device__ __forceinline__ int first_row(const RowStarts& starts, int request) {
  return starts.cu_rows == nullptr ? request * starts.length : starts.cu_rows[request];
}

// The same in the workspace.
__device__ __forceinline__ int first_workspace_row(const RowStarts& starts, int request) {
  return (first_row(starts, request) / kRowPadding + request) * kRowPadding;
}

// The request to which a row of the workspace belongs. Called by whole warps, with one row.
__device__ __forceinline__ int request_of_workspace_row(const RowStarts& starts, int requests,
                                                        int row) {
  return last_that_begins(requests,
                          [&](int request) { return first_workspace_row(starts, request) <= row; });
}

struct Request {
  int batch;             // index of its tensors: 0 if they are packed
  int first_q, first_k;  // its first rows there
  int q_len, kv_len;
  int first_live, live;      // the queries that see a key; query i of these
  int first_from, diagonal;  // sees keys max(0, i + first_from) to i + diagonal
  int key_end;               // no query sees this key or a later one
  int64_t logsumexp;         // index of query 0 of head 0
  int64_t logsumexp_stride;  // from head to head

  __device__ Request(const Requests& all, int request, int q_heads) {
    const int start_q = first_row(all.queries, request), start_k = first_row(all.keys, request);
    batch = all.packed ? 0 : request;
    first_q = all.packed ? start_q : 0;
    first_k = all.packed ? start_k : 0;
    q_len = first_row(all.queries, request + 1) - start_q;
    kv_len = first_row(all.keys, request + 1) - start_k;
    const int own = all.top_left ? 0 : kv_len - q_len;
    diagonal = own + all.right;
    first_from = max(own - all.left, -q_len);
    key_end = q_len == 0 ? 0 : max(0, min(kv_len, q_len + diagonal));
    first_live = max(0, -diagonal);
    live = key_end == 0 ? 0 : max(0, min(q_len, kv_len - first_from) - first_live);
    diagonal += first_live;
    first_from += first_live;
    logsumexp_stride = all.packed ? all.q_tokens : all.queries.length;
    logsumexp = int64_t{batch} * q_heads * all.queries.length + first_q;
  }
};

}  // namespace flashbench::kernels::backward
