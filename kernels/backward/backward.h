// What the backward passes on tensor cores share, whatever their main kernel: dQ, dK and dV from Q,
// K, V, O, dO and the logsumexp in three launches, with FlashAttention-2's schedule (Dao 2023,
// algorithm 2), or in four by request (kernels/common/requests.h), of which the first lists the
// main kernel's work (list_work.cuh):
//   dot_do_o.cu       D = rowsum(dO o O), and a workspace to start from
//   the main kernel   dK, dV and, as sums in fp32, dQ (kernels/sm80, kernels/sm90)
//   convert.cu        dQ from its sums, rounded unless it is to be fp32 (Launch::fp32_outputs)
// Where thread blocks share a block of keys (split.h), dK and dV are sums in fp32 as well.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/attention.h"
#include "kernels/backward/requests.h"
#include "kernels/backward/split.h"
#include "kernels/common/launch.h"
#include "kernels/common/sections.cuh"

namespace flashbench::kernels::backward {

struct Strided {
  void* data;
  int64_t batch_stride, head_stride, row_stride;

  template <typename Element>
  __device__ Element* head(int b, int h) const {
    return static_cast<Element*>(data) + b * batch_stride + h * head_stride;
  }
};

struct Arguments {
  Strided q, k, v, o, d_o, dq, dk, dv;
  const float* logsumexp;  // [batch, q_heads, q_len], base e

  // The workspace.
  // [batch * q_heads, padded_q / 16, padded head_dim / 8, 128], or with transposed tiles
  // [batch * q_heads, padded_q / 64, padded head_dim / 64, 8, 4, 128]
  float* dq_sums;
  float* logsumexp_base_2;  // [batch * q_heads, padded_q], +inf for rows that see no key
  float* d;                 // [batch * q_heads, padded_q]
  int* turns;               // [batch * q_heads, padded_q / kTurnRows]
  int* tickets;             // number of work items taken so far, for kernels that count them
  void* work_list;          // of RequestWork, by request
  // Of work items in pieces (kernels/common/last_wave.h): the sums of each piece, and how many have
  // stored theirs, [pieces, kMostPieceWarps], of which an item uses those of its first piece.
  float* piece_sums;
  unsigned* piece_arrivals;
  // Accumulators of shared blocks of keys, laid out like dQ's: [slices, batch * kv_heads, padded_kv
  // / 16, ...].
  float *dk_sums, *dv_sums;
  // Either each part has its own slice, or there is one slice, set to zero, to which all parts add.
  int slices;
  int64_t zeros;  // number of floats of dk_sums, and of dv_sums, to set to zero

  int batch, q_heads, kv_heads, group, q_len, kv_len, head_dim, padded_q, padded_kv;
  int parts;      // thread blocks that share a block of keys
  int adds_keys;  // whether dK and dV are added to sums: other parts, or other launches, do so too
  int key_blocks;
  int work_items;   // of the main kernel, with the further pieces of those of the last wave
  int whole_items;  // items from this one on are pieces of a block of keys, `pieces` each
  int pieces;
  int at_once;          // by request: how many run at once, if the last wave may be split; else 0
  Sections sections{};  // of parts of K/V heads, for the main kernel
  int key_end;          // no query sees this key or a later one
  int diagonal;         // query q sees keys 0 to q + diagonal
  float scale, scale_log2;

  // Only where requests have different lengths. They are then one sequence: batch is 1, padded_q
  // and padded_kv are the rows of the workspace for all of them, key_blocks counts slots
  // (requests.cuh), and what the requests say takes the place of logsumexp's shape, q_len, kv_len,
  // key_end and diagonal.
  Requests requests;
};

constexpr int kTurnRows = 16;  // rows of Q per turn counter; a block of Q has one or more counters

// A kernel in which each thread block processes `rows` rows of one head.
struct RowKernel {
  CudaKernel<Arguments> kernel;
  int rows;
};
RowKernel dot_do_o(const Problem&);
constexpr int kDotBlocks = 5;  // thread blocks of dot_do_o that share a multiprocessor
// How the main kernel tiles the accumulators of dQ; see accumulator.cuh. Transposed tiles are
// compiled for head_dim 128.
enum class DqTiles { plain, transposed };
RowKernel convert(const Launch&, DqTiles);

// Blocks of kKeySumBlock keys of each head whose dK and dV one launch makes from sums.
struct KeyConversion {
  Arguments args;
  int first, count;  // of the blocks of a head
};
CudaKernel<KeyConversion> convert_keys(const Problem&);

inline constexpr size_t kRequestWorkBytes = 96;  // of an item in the list
// Where the last wave is split (kernels/common/last_wave.h).
inline constexpr int kMostPiecesAtOnce = 2;  // of a launch, for each item that runs at once
inline constexpr int kMostPieceWarps = 16;   // of a thread block, or two, that add up pieces
inline constexpr int kLeastPieceSteps = 4;   // of a piece (see Work); its ends take as long as two

inline constexpr int kListingThreads = 128;  // of the kernel that lists work

// Of requests, a reason if the workspace's rows cannot be counted in 32 bits.
std::optional<std::string> why_too_many_rows(const Problem&);
size_t workspace_bytes(const Launch&, const MainKernel&);
Arguments arguments(const Launch&, const Inputs&, const Outputs&, void* workspace,
                    const MainKernel&);
int64_t requested_bytes(const Launch&, const MainKernel&);
void launch_first(const Launch&, const Arguments&, Stream, Start);
// Thread blocks of a kernel in which each warp lists one item.
int64_t listing_thread_blocks(const Arguments&, int threads);
int64_t main_thread_blocks(const Launch&, const Arguments&, bool persistent);
void launch_last(const Launch&, const Arguments&, Stream, Start, DqTiles);
void store_key_sums(const Launch&, RowRange keys, const Outputs&, Stream);
// Describes the block sizes and the number of parts, or how many blocks of keys have how many
// pieces.
std::string describe_main(const Launch&, const MainKernel&);

}  // namespace flashbench::kernels::backward
