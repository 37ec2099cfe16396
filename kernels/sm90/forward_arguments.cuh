// What the forward kernels for Hopper share: what they are compiled for, their arguments and their
// entry.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/common/divisor.cuh"
#include "kernels/common/sections.cuh"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/setmaxnreg.h"
#include "kernels/sm90/forward_blocks.h"
#include "kernels/sm90/forward_pieces.h"
#include "kernels/sm90/roles.cuh"
#include "kernels/sm90/tensor_map.h"

namespace flashbench::kernels::sm90 {

struct Config {
  int head_dim;  // multiple of 16
  int block_q;   // kConsumerRows for each consumer
  int block_kv;  // multiple of 16
  int stages;    // buffers for blocks of K, and as many for V, in shared memory
  bool stage_o;  // O goes through shared memory of its own
  bool turns;    // consumers issue their products in turn
  int at_once;   // thread blocks per multiprocessor

  // For requests of different lengths, windows and pages.
  bool by_request = false;
  // Whether a kernel by request serves different lengths and pages, which its producer looks up. If
  // not, it serves equal lengths without pages.
  bool looks_up = false;
  // O is stored as it was summed, for others to merge.
  bool fp32_o = false;
  // Whether the first block of queries of a head may lack rows; see missing_rows().
  bool first_lacks_rows = false;
  // For a share of the queries, whose keys are fetched meanwhile (kernels::Share).
  bool shared = false;
  // Several thread blocks divide the keys of a tile among themselves. Each stores its O in fp32 and
  // its logsumexp, for another launch to merge (merge_parts.cuh).
  bool in_parts = false;
  // Of two parts, whose thread blocks form a pair, a cluster. They merge the parts (merge_pair.cuh)
  // and store the results. Each has one tile.
  bool in_pairs = false;
  // A consumer computes the softmax of a block beside its own P V of the block before
  // (multiply_overlapped).
  bool overlaps = false;
  // The last tiles of a launch may be in pieces (forward_pieces.h). That takes code, which costs
  // short launches 1% even where none are.
  bool has_pieces = false;
};

constexpr Config configuration(int head_dim, int block_q, int block_kv, int stages,
                               bool by_request = false) {
  // At head_dim 256 shared memory has no room for O, and turns are 2% faster; at other sizes they
  // are slower.
  const bool large = head_dim > 192;
  return {.head_dim = head_dim,
          .block_q = block_q,
          .block_kv = block_kv,
          .stages = stages,
          .stage_o = !large,
          .turns = large,
          .at_once = thread_blocks_at_once(head_dim, block_q),
          .by_request = by_request,
          .looks_up = by_request,
          .first_lacks_rows = true};
}

// The same for launches whose last tiles are in pieces.
constexpr Config with_pieces(Config config) {
  config.has_pieces = true;
  return config;
}

// The same with O in fp32, for which shared memory has no room.
constexpr Config with_fp32_o(Config config) {
  config.stage_o = false;
  config.fp32_o = true;
  return config;
}

// The same with more overlap. Two consumers take turns, since in step they would compute
// exponentials while the tensor cores idle.
constexpr Config with_overlap(Config config) {
  config.overlaps = true;
  config.turns = config.block_q == 2 * kConsumerRows;
  return config;
}

// The same by request with the keys in parts.
constexpr Config with_parts(Config config) {
  config = with_fp32_o(config);
  config.in_parts = true;
  config.first_lacks_rows = false;
  return config;
}

// The same of two parts, which a pair of thread blocks merges.
constexpr Config with_pairs(Config config) {
  config.in_pairs = true;
  return config;
}

// The same without code for different lengths and pages. A short launch fetches its instructions
// cold, so that even code that does not run costs time.
constexpr Config without_look_up(Config config) {
  config.looks_up = false;
  return config;
}

// The same for a share.
constexpr Config with_share(Config config) {
  config.first_lacks_rows = false;
  config.shared = true;
  return config;
}

// Queries [first, end) of each head, in `blocks` blocks, of which the last ends with `end`.
struct QueryRange {
  int first, end, blocks;
};

struct RowSpan {
  int first, end;
};

// What a launch for a share fetches (kernels::Share), in parts. A part has `part_rows` rows of
// `part_heads` K/V heads of all requests, and of the query heads that share them. The first heads
// come first, and of them the last rows. Warps take it in slices of up to kSliceRows rows of one
// head of one tensor, of which some may be empty.
struct Fetch {
  static constexpr int kSliceRows = 32, kMostParts = 63;

  // Strides in words of 16 bytes.
  struct Tensor {
    const uint4* from;
    uint4* to;
    int64_t from_batch, from_head, to_batch, to_head;
    int from_row, to_row;
  };
  Tensor tensors[3];  // K, V, Q
  bool has_q;         // whether Q is fetched, too
  int rows, heads;    // all of K, of all requests
  int row_words;      // of 16 bytes
  int part_heads;
  Divisor part_rows{1};
  int slices;                // 0: everything is there
  Divisor kv_heads{1};       // of a request
  Divisor tensor_heads{1};   // heads of K, V and Q that go with a K/V head
  Divisor across_slices{1};  // of a part, with the same rows
  Divisor part_slices{1};
  Divisor row_parts{1};  // with the same heads
  int* taken;            // slices
  int* there;            // slices of each part
};

struct Arguments {
  CUtensorMap q, k, v, staged_o;  // of [batch, heads, rows, head_dim]
  void* o;
  float* logsumexp;
  int64_t o_batch_stride, o_head_stride, o_row_stride;  // in elements
  int heads, heads_per_kv_head, q_len, kv_len, head_dim;
  int diagonal;  // query i sees keys 0 to i + diagonal
  // The first block of queries of a head begins with query -missing_rows. Not if by request, where
  // a tile finds its own.
  int missing_rows;
  int q_blocks, batch_heads, section_heads;
  ItemOrder order;
  unsigned* last_taken;  // see take_tile; starts at UINT_MAX
  float scale_log2;      // takes Q K^T to the softmax's exponents in base 2

  // Only if by request, when the maps are those of request_map(), q_blocks counts slots (see
  // requests.cuh), and q_len and kv_len are those of the longest.
  RowSteps q_steps, k_steps, v_steps, o_steps;
  const int *cu_seqlens_q, *cu_seqlens_k;  // null: equal lengths
  int64_t logsumexp_batch_stride, logsumexp_head_stride;
  Divisor requests{1};
  int request_blocks;  // of queries, or of rows of packed heads, that each has at equal lengths
  bool packed;         // rows of Q, K, V, O and the logsumexp count through all requests
  bool top_left;       // a query's own key has its number; else the last query's is the last key
  int left, right;     // keys that a query sees before and after its own

  // Where pages hold the keys: page `number` of request b is block_table[b * table_stride + number]
  // of the pool, in whose maps pages stand for requests. Else null.
  const int* block_table;
  int64_t table_stride;
  int box_rows;  // as many rows of a block of keys as are in one page
  Divisor page_size{1};

  // Only if shared (kernels::Share).
  QueryRange own[2];       // ascending
  bool own_rows_of_warps;  // whether the rows of a warp are all of the share, or none
  RowSpan in_place[2];     // of all_q, all_k and all_v; whole blocks
  CUtensorMap all_q, all_k, all_v;
  Fetch fetch;

  // Only if in parts: how many each tile has. Those of O and the logsumexp, [parts, rows], lie in
  // the order of the logsumexp of all requests. The query heads of a K/V head may be packed: a tile
  // then has rows of several, each of which has head_rows, a multiple of 8.
  Divisor parts{1};
  int64_t part_rows;
  int packed_heads;        // 1: none are packed, and head_rows are more than there are
  Divisor head_groups{1};  // heads, or groups of those that are packed
  Divisor head_rows{1};
  int q_box_rows;  // of one head, copied at once

  Pieces pieces;  // only if the configuration has them

  // The number of keys that a query sees, if positive; else it sees none.
  __device__ int visible_keys(int query) const { return min(kv_len, query + diagonal + 1); }

  // Whether a block of rows is read from all_q, all_k and all_v.
  __device__ bool has_in_place(int first_row) const {
    const auto has = [&](const RowSpan& rows) {
      return rows.first <= first_row && first_row < rows.end;
    };
    return has(in_place[0]) || has(in_place[1]);
  }
};

// Gives the warpgroups of a thread block their roles.
template <typename Kernel, typename KernelArguments>
__device__ __forceinline__ void run_forward(const KernelArguments& a) {
  using Shared = typename Kernel::Shared;
  extern __shared__ __align__(1024) char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(a.q);
    ptx::prefetch_tensormap(a.k);
    ptx::prefetch_tensormap(a.v);
    Kernel::initialise_barriers(a, shared);
  }
  __syncthreads();
  // The shuffle tells the compiler that the value is the same in all lanes. The compiler places the
  // code of the second branch directly behind. It is the producer's, since all wait for its loads.
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup > 0) {
    ptx::setmaxnreg_inc<Kernel::kConsumerRegisters>();
    Kernel::consume(a, shared, warpgroup - 1);
  } else {
    ptx::setmaxnreg_dec<Kernel::kProducerRegisters>();
    Kernel::produce(a, shared);
  }
}

}  // namespace flashbench::kernels::sm90
