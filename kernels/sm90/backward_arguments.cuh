// What the main kernels of the backward pass for Hopper share: their arguments and their entry.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace flashbench::kernels::sm90 {

struct BackwardArguments {
  CUtensorMap q, d_o;        // queries from first_live on; boxes of block_q rows
  CUtensorMap k, v;          // keys before key_end; boxes of all keys of a thread block
  CUtensorMap dk[2], dv[2];  // all columns, or each consumer's half; boxes of 16 rows
  CUtensorMap logsumexp, d;  // in the workspace (see kernels/backward/backward.h); boxes of block_q
  // Also in the workspace. Only the deterministic kernel uses turns and tickets.
  float *dq_sums, *dk_sums, *dv_sums;
  int *turns, *tickets;
  int batch, q_heads, kv_heads, group, q_len, key_end, padded_q, padded_kv;
  int parts;       // thread blocks that share a block of keys
  int first_live;  // queries before this one see no key
  int diagonal;    // query q sees keys 0 to q + diagonal
  int key_blocks, section_heads;
  float scale, scale_log2;
};

// What three warpgroups may have together, in registers per thread. A launch gives each thread 168,
// and setmaxnreg waits for more forever.
inline constexpr int kWarpgroupRegisters = 3 * 168;

// A block of queries of one head.
template <int kBlockQ, int kBlockKv>
struct BackwardBlock {
  int first_query;
  int64_t first_row;  // of the workspace, which holds all heads: that of first_query
  bool masked;        // whether any element of S has to be masked

  template <typename Work, typename Step>
  __device__ BackwardBlock(const BackwardArguments& a, const Work& work, const Step& step)
      : first_query(step.block * kBlockQ),
        first_row(int64_t{work.batch * a.q_heads + step.head} * a.padded_q + first_query),
        masked(min(a.key_end, first_query + a.diagonal + 1) < work.first_key + kBlockKv ||
               first_query + kBlockQ > a.q_len) {}
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    backward_kernel(const __grid_constant__ BackwardArguments arguments) {
  Kernel::run(arguments);
}

}  // namespace flashbench::kernels::sm90
