// What the decoding kernels for Hopper are compiled for, and their arguments.
#pragma once

#include <cstdint>

#include "kernels/common/divisor.cuh"
#include "kernels/common/forward_tensors.h"

namespace flashbench::kernels::sm90 {

// What a decoding kernel knows of its batch.
//   equal     all requests have as many queries, and as many keys; rows lie a fixed distance apart
//   paged     the same, but pages hold the keys
//   portions  each request may have lengths and pages of its own: thread blocks take portions of
//             all requests' keys (decode_portions.cuh)
enum class DecodeBatch { equal, paged, portions };

struct DecodeConfig {
  int head_dim;   // multiple of 32
  int value_dim;  // of V and O; multiple of 32
  int row_tiles;  // of 16 packed rows
  int keys;       // of a warp's tile, 16 or 32
  int warps;
  int stages;   // tiles of K, and as many of V, in a warp's ring
  int at_once;  // thread blocks per multiprocessor
  DecodeBatch batch = DecodeBatch::equal;
  bool byte_cache = false;  // K and V are e4m3, beside Q and O of 16 bits
  bool fp32_o = false;      // O is fp32, and its rows are multiples of 16 bytes
};

struct DecodeArguments {
  ForwardTensors tensors;
  int kv_heads, group, q_len, kv_len, head_dim, value_dim;
  int first_from, end_from;    // query i sees keys from i + first_from to before i + end_from
  float inverse_group;         // 1 / group
  int row_blocks;              // of a unit
  int clusters, cluster_size;  // see Splits
  float scale_log2;            // takes Q K^T to the softmax's exponents in base 2
  // Where clusters share a unit: O of each [units, clusters, rows of a block, value_dim]; its
  // maxima and sums [units, clusters, cluster_size, rows of a block, 2]; and the number of clusters
  // that have announced their part, less 1, for each [units, cluster_size]. Between launches all of
  // them are words of ones.
  float *partial_o, *partial_sums;
  unsigned* announced;

  // Of a cache of bytes: the factors of K and of V, `factor_stride` from head to head.
  const float *k_factors, *v_factors;
  int factor_stride;

  // Where pages hold the keys: page `number` of request b is block_table[b * table_stride + number]
  // of the pool, in whose strides pages stand for requests. Else null, and pages have 2^30 keys.
  const int32_t* block_table;
  int64_t table_stride;
  Divisor page_size;

  // DecodeBatch::portions. How many queries, or keys, the requests before each have, [batch + 1];
  // null where all have q_len and kv_len.
  const int32_t *cu_seqlens_q, *cu_seqlens_k;
  bool is_ragged;   // the requests' rows lie behind each other
  bool ends_right;  // kv_len - q_len of each request is to be added to first_from and end_from
  int batch;
  int64_t logsumexp_batch, logsumexp_head;  // strides
  // Portions of the batch's tiles of keys, or 0: portions of `portion_tiles` tiles, a power of two,
  // which begin anew with each request. Else a portion has at least so many.
  int portions, portion_tiles;
  int tiles_of_ends;  // in how many tiles' time a thread block begins and ends a request
  // Parts of a unit lie in partial_o [portions, part_slots, thread blocks of a portion, part_rows,
  // value_dim], in partial_sums alike; announced is [portions, thread blocks of a portion].
  int part_slots, part_rows;
};

}  // namespace flashbench::kernels::sm90
