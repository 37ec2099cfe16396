// Attention backward on tensor cores of sm_80 and later: dQ, dK and dV from Q, K, V, O, dO and the
// logsumexp, with FlashAttention-2's schedule (Dao 2023, algorithm 2). Three launches, in this
// order, by backward.cpp:
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
  int* tickets;             // thread blocks started
  // Of shared blocks of keys, of dQ's form [slices, batch * kv_heads, padded_kv / 16, ...].
  float *dk_sums, *dv_sums;
  // Each part has a slice of its own, or all add to one, which starts with zeros.
  int slices;
  int64_t zeros;  // that dk_sums and dv_sums each start with

  int batch, q_heads, kv_heads, group, q_len, kv_len, head_dim, padded_q, padded_kv;
  int parts;  // that share a block of keys
  int key_blocks;
  int section_heads;  // parts of K/V heads whose thread blocks are mixed
  int key_end;        // keys from here on are seen by no query
  int diagonal;       // query q sees keys 0 to q + diagonal
  float scale, scale_log2;
};

constexpr int kRowPadding = 128;  // lengths are rounded up to a multiple of this in the workspace
constexpr int kTurnRows = 16;     // of Q for each turn: a block of Q has one or more

// A kernel of which each thread block takes `rows` rows of one head.
struct RowKernel {
  CudaKernel<BackwardArguments> kernel;
  int rows;
};
RowKernel dot_do_o(const Problem&);
RowKernel convert(const Problem&);

// What does not depend on the main kernel, of which sm90 has one of its own. Where sums are
// deterministic each part of a block of keys has its own.
size_t backward_workspace_bytes(const Launch&, bool deterministic);
BackwardArguments backward_arguments(const Launch&, const Inputs&, const Outputs&, void* workspace,
                                     bool deterministic);
int64_t backward_requested_bytes(const Launch&, bool deterministic);
void launch_first(const Problem&, const BackwardArguments&, Stream);
int64_t main_thread_blocks(const BackwardArguments&);
void launch_last(const Problem&, const BackwardArguments&, Stream);
// The blocks, and the parts if there are some.
std::string describe_main(const Launch&);

// The main kernel for one head_dim and choice of block sizes. Each thread block takes blocks.kv
// keys of one K/V head.
struct MainVariant {
  int head_dim;
  BlockSizes blocks;
  int shared_bytes;
  CudaKernel<BackwardArguments> kernels[2][2];  // [bf16][deterministic]
};
std::span<const MainVariant> main_variants();

}  // namespace flashbench::kernels::sm80
