// The requests of a batch on the device, in the backward pass.
#pragma once

#include <cstdint>

#include "kernels/backward/requests.h"

namespace flashbench::kernels::backward {

// The first row of a request in the workspace.
__device__ __forceinline__ int first_workspace_row(const int* cu_rows, int request) {
  return (cu_rows[request] / kRowPadding + request) * kRowPadding;
}

// The request to which a row of the workspace belongs.
__device__ __forceinline__ int request_of_workspace_row(const int* cu_rows, int requests, int row) {
  int first = 0;
  for (int end = requests; end - first > 1;) {
    const int middle = first + (end - first) / 2;
    (first_workspace_row(cu_rows, middle) <= row ? first : end) = middle;
  }
  return first;
}

struct Request {
  int batch;             // index of its tensors: 0 if they are packed
  int first_q, first_k;  // its first rows there
  int q_len, kv_len;
  int first_live, live;      // the queries that see a key; query i of these
  int diagonal;              // sees keys 0 to i + diagonal
  int key_end;               // no query sees this key or a later one
  int64_t logsumexp;         // index of query 0 of head 0
  int64_t logsumexp_stride;  // from head to head

  __device__ Request(const Requests& all, int request, int q_heads) {
    const int start_q = all.cu_seqlens_q[request], start_k = all.cu_seqlens_k[request];
    constexpr int kNoDiagonal = 1 << 30;  // beyond all keys
    batch = all.packed ? 0 : request;
    first_q = all.packed ? start_q : 0;
    first_k = all.packed ? start_k : 0;
    q_len = all.cu_seqlens_q[request + 1] - start_q;
    kv_len = all.cu_seqlens_k[request + 1] - start_k;
    diagonal = !all.causal ? kNoDiagonal : all.top_left ? 0 : kv_len - q_len;
    key_end = q_len == 0 ? 0 : max(0, min(kv_len, q_len + diagonal));
    first_live = max(0, -diagonal);
    live = key_end == 0 ? 0 : q_len - first_live;
    diagonal += first_live;
    logsumexp_stride = all.packed ? all.q_tokens : all.q_len;
    logsumexp = int64_t{batch} * q_heads * all.q_len + first_q;
  }
};

}  // namespace flashbench::kernels::backward
