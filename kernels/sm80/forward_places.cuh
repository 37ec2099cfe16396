// What a thread block of sm80's forward kernel computes, and where its rows lie in memory: in a
// batch of equal lengths, or by request, with lengths, windows and pages.
#pragma once

#include <cstdint>

#include "kernels/common/divisor.cuh"
#include "kernels/common/forward_tensors.h"
#include "kernels/common/requests.cuh"
#include "kernels/common/sections.cuh"

namespace flashbench::kernels::sm80 {

struct ForwardArguments {
  ForwardTensors tensors;
  int heads, heads_per_kv_head, q_len, kv_len, head_dim;
  int diagonal;  // query i sees keys 0 to i + diagonal
  int q_blocks, batch_heads, section_heads;
  float scale_log2;  // takes Q K^T to the softmax's exponents in base 2
};

struct ForwardByRequestArguments : ForwardArguments {
  // How many queries, or keys, the requests before each have, [requests + 1]; null where all have
  // q_len and kv_len.
  const int32_t *cu_seqlens_q, *cu_seqlens_k;
  int requests;
  bool is_ragged;  // the requests' rows lie behind each other
  bool causal;
  int64_t logsumexp_batch, logsumexp_head;  // strides
  // Query i sees keys from i + first_from to before i + end_from, if `ends_right` of
  // kv_len - q_len more.
  int first_from, end_from;
  bool ends_right;
  // Where pages hold the keys: page `number` of request b is block_table[b * table_stride + number]
  // of the pool, in whose strides pages stand for requests. Else null, and pages have 2^30 keys.
  const int32_t* block_table;
  int64_t table_stride;
  Divisor page_size;
};

// The keys that a query sees.
struct SeenKeys {
  int first, end;
};

// Rows a fixed distance apart, of which `count` exist.
template <typename T>
struct StridedRows {
  const T* at;
  int64_t stride;
  int count;

  __device__ void turn_to(int row) {
    at += row * stride;
    count -= row;
  }
  __device__ void turn_by(int rows) { at += rows * stride; }
  __device__ bool has(int row) const { return row < count; }
  __device__ const T* address() const { return at; }
};

// Keys of a request, from `key` on, of which those from `begin` to before `end` are read.
template <typename T>
struct RequestRows {
  const T* first;
  int64_t page_stride, row_stride;
  const int32_t* table;  // of the request; null: everything is page 0
  Divisor page_size;
  int key, begin, end;

  __device__ void turn_to(int row) { key += row; }
  __device__ void turn_by(int rows) { key += rows; }
  __device__ bool has(int) const { return begin <= key && key < end; }
  __device__ const T* address() const {
    if (!has(0)) return first;
    const int page = table == nullptr ? 0 : __ldg(table + page_size.quotient(key));
    return first + page * page_stride + page_size.remainder(key) * row_stride;
  }
};

// A block of queries of a head of a request, in a batch of equal lengths.
template <int kBlockQ>
struct EqualPlace {
  using Arguments = ForwardArguments;
  static constexpr bool kHasFirst = false;  // queries see keys from 0 on

  int batch, head, q_block;

  // The last blocks of queries come first: with a causal mask they see the most keys.
  __device__ EqualPlace(const Arguments& a, int index) {
    const SectionItem item = item_in_sections(index, a.batch_heads, a.section_heads, a.q_blocks);
    batch = item.head / a.heads;
    head = item.head % a.heads;
    q_block = a.q_blocks - 1 - item.block;
  }

  __device__ bool exists() const { return true; }
  __device__ int q_len(const Arguments& a) const { return a.q_len; }
  __device__ SeenKeys seen(const Arguments& a, int query) const {
    return {0, min(a.kv_len, query + a.diagonal + 1)};
  }
  __device__ int first_seen(const Arguments&, int) const { return 0; }

  __device__ int64_t q_offset(const Strides& strides, int query) const {
    return batch * strides.batch + head * strides.head + query * strides.row;
  }
  __device__ int64_t logsumexp_offset(const Arguments& a, int query) const {
    return (int64_t{batch} * a.heads + head) * a.q_len + query;
  }
  template <typename T>
  __device__ StridedRows<T> keys(const Arguments& a, const void* tensor, const Strides& strides,
                                 int from, SeenKeys range) const {
    const int kv_head = head / a.heads_per_kv_head;
    const T* const first =
        static_cast<const T*>(tensor) + batch * strides.batch + kv_head * strides.head;
    return {first + from * strides.row, strides.row, range.end - from};
  }
};

// The same of a request that may have lengths and pages of its own.
template <int kBlockQ>
struct RequestPlace {
  using Arguments = ForwardByRequestArguments;
  static constexpr bool kHasFirst = true;

  int batch, head, q_block;  // q_block is -1 for no block
  int own_q_len, own_kv_len, first_from, end_from;
  int first_q, first_k;  // rows before the request's, if all lie behind each other

  __device__ RequestPlace(const Arguments& a, int index)
      : head(index % a.heads),
        own_q_len(a.q_len),
        own_kv_len(a.kv_len),
        first_from(a.first_from),
        end_from(a.end_from),
        first_q(0),
        first_k(0) {
    const int slot = index / a.heads;
    if (a.cu_seqlens_q == nullptr) {
      batch = slot % a.requests;
      q_block = a.q_blocks - 1 - slot / a.requests;
    } else {
      const RequestBlock found =
          block_in_slot<kBlockQ>(a.cu_seqlens_q, a.cu_seqlens_k, a.requests, slot, a.causal);
      batch = max(0, found.request);
      q_block = found.blocks - 1 - found.block;  // block 0 has the most work
      const int q_begin = a.cu_seqlens_q[batch], k_begin = a.cu_seqlens_k[batch];
      own_q_len = a.cu_seqlens_q[batch + 1] - q_begin;
      own_kv_len = a.cu_seqlens_k[batch + 1] - k_begin;
      if (a.is_ragged) {
        first_q = q_begin;
        first_k = k_begin;
      }
    }
    if (a.ends_right) {
      first_from += own_kv_len - own_q_len;
      end_from += own_kv_len - own_q_len;
    }
  }

  __device__ bool exists() const { return q_block >= 0; }
  __device__ int q_len(const Arguments&) const { return own_q_len; }
  __device__ SeenKeys seen(const Arguments&, int query) const {
    return {query + first_from, min(own_kv_len, query + end_from)};
  }
  __device__ int first_seen(const Arguments&, int query) const {
    return max(0, query + first_from);
  }

  __device__ int64_t q_offset(const Strides& strides, int query) const {
    return batch * strides.batch + head * strides.head + (int64_t{first_q} + query) * strides.row;
  }
  __device__ int64_t logsumexp_offset(const Arguments& a, int query) const {
    return batch * a.logsumexp_batch + head * a.logsumexp_head + first_q + query;
  }
  template <typename T>
  __device__ RequestRows<T> keys(const Arguments& a, const void* tensor, const Strides& strides,
                                 int from, SeenKeys range) const {
    const T* first = static_cast<const T*>(tensor) + head / a.heads_per_kv_head * strides.head;
    const bool paged = a.block_table != nullptr;
    if (!paged) first += batch * strides.batch + first_k * strides.row;
    return {first,       strides.batch,
            strides.row, paged ? a.block_table + batch * a.table_stride : nullptr,
            a.page_size, from,
            range.first, range.end};
  }
};

}  // namespace flashbench::kernels::sm80
