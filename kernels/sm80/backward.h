// Attention backward on tensor cores of sm_80 and later: dQ, dK and dV from Q, K, V, O, dO and the
// logsumexp, with FlashAttention-2's schedule (Dao 2023, algorithm 2). backward.cpp makes three
// launches in this order:
//   backward_dot_do_o.cu    D = rowsum(dO o O), and a workspace to start from
//   backward_main.cu        dK, dV and, as sums in fp32, dQ
//   backward_convert.cu     dQ from its sums
// Where thread blocks share a block of keys (backward_split.h), dK and dV are sums in fp32 as well.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>

#include "kernels/attention.h"
#include "kernels/common/launch.h"

namespace flashbench::kernels::sm80 {

struct Strided {
  void* data;
  int64_t batch_stride, head_stride, row_stride;

  template <typename Element>
  __device__ Element* head(int b, int h) const {
    return static_cast<Element*>(data) + b * batch_stride + h * head_stride;
  }
};

struct BackwardArguments {
  Strided q, k, v, o, d_o, dq, dk, dv;
  const float* logsumexp;  // [batch, q_heads, q_len], base e

  // The workspace.
  float* dq_sums;           // [batch * q_heads, padded_q / 16, padded head_dim / 8, 128]
  float* logsumexp_base_2;  // [batch * q_heads, padded_q], +inf for rows that see no key
  float* d;                 // [batch * q_heads, padded_q]
  int* turns;               // [batch * q_heads, padded_q / kTurnRows]
  int* tickets;             // number of thread blocks started so far
  // Accumulators of shared blocks of keys, laid out like dQ's: [slices, batch * kv_heads, padded_kv
  // / 16, ...].
  float *dk_sums, *dv_sums;
  // Either each part has its own slice, or there is one slice, set to zero, to which all parts add.
  int slices;
  int64_t zeros;  // number of floats of dk_sums, and of dv_sums, to set to zero

  int batch, q_heads, kv_heads, group, q_len, kv_len, head_dim, padded_q, padded_kv;
  int parts;  // thread blocks that share a block of keys
  int key_blocks;
  int section_heads;  // in a section (sections.cuh), counted in parts of K/V heads
  int key_end;        // no query sees this key or a later one
  int diagonal;       // query q sees keys 0 to q + diagonal
  float scale, scale_log2;
};

constexpr int kRowPadding = 128;  // lengths are rounded up to a multiple of this in the workspace
constexpr int kTurnRows = 16;  // rows of Q per turn counter; a block of Q has one or more counters

// A kernel in which each thread block processes `rows` rows of one head.
struct RowKernel {
  CudaKernel<BackwardArguments> kernel;
  int rows;
};
RowKernel dot_do_o(const Problem&);
RowKernel convert(const Problem&);

// Code that does not depend on the main kernel; sm90 has a main kernel of its own. In the
// deterministic kernel, each part of a block of keys has its own accumulators.
size_t backward_workspace_bytes(const Launch&, bool deterministic);
BackwardArguments backward_arguments(const Launch&, const Inputs&, const Outputs&, void* workspace,
                                     bool deterministic);
int64_t backward_requested_bytes(const Launch&, bool deterministic);
void launch_first(const Problem&, const BackwardArguments&, Stream);
int64_t main_thread_blocks(const BackwardArguments&);
void launch_last(const Problem&, const BackwardArguments&, Stream);
// Describes the block sizes and, if blocks of keys are shared, the number of parts.
std::string describe_main(const Launch&);

// The main kernel for one head_dim and one choice of block sizes. Each thread block owns blocks.kv
// keys of one K/V head.
struct MainVariant {
  int head_dim;
  BlockSizes blocks;
  int shared_bytes;
  CudaKernel<BackwardArguments> kernels[2][2];  // [bf16][deterministic]
};
std::span<const MainVariant> main_variants();

}  // namespace flashbench::kernels::sm80
