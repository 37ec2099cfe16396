// The descriptor of one of our own kernels. flashbench uses it to list, choose, launch and account
// for the kernel. Kernels know tensors and launch arguments, but nothing of JSON, the command line
// or timing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/accumulator.h"
#include "attention/problem.h"
#include "attention/run_part.h"
#include "attention/schedule.h"
#include "attention/tensors.h"
#include "device/device.h"

namespace flashbench::kernels {

// How a kernel tiles its problem. Each kernel lists the sizes that it can run.
struct BlockSizes {
  int q = 0, kv = 0;  // rows of a block of Q, and of K and V
  int warps = 0;      // per thread block
  int stages = 0;     // blocks in flight between global and shared memory
  int cluster = 1;    // thread blocks that divide the rows of a block of K and V among themselves
  bool overlaps = false;  // warps compute a block's softmax beside their own products of another

  bool operator==(const BlockSizes&) const = default;
};

// Keys and values that arrive while a kernel runs, and gradients that leave meanwhile. Any thread
// may call its members.
class KeyGate {
 public:
  virtual ~KeyGate() = default;

  // Returns once the keys before `end` and their values may be read.
  virtual void wait(int64_t end) const = 0;

  // dK and dV of these keys of a head of a request are written. Each key is named once.
  virtual void finished(RowRange) const {}
};

// One GPU's share of a problem that several have: some of the queries. Q, O and the logsumexp have
// all queries, of which the rows of others are not written. K and V have the keys that the queries
// see, from the first on. While the launch computes, it fetches the rows of Q, K and V that other
// GPUs have.
struct Share {
  std::array<RowRange, 2> queries;  // ascending, without a row of both

  // Q, K and V in the memory of all GPUs. The launch reads `own_rows` there, and copies the others
  // to the Q, K and V of its inputs; all of Q is read where the inputs have it if `all_q` is null.
  ConstTensorView all_q = {}, all_k = {}, all_v = {};
  std::array<RowRange, 2> own_rows = {};

  // kShareProgressBytes of the GPU's memory, which the launch clears first.
  void* progress = nullptr;
  // Whether there is anything to fetch; else the inputs have these rows, of an earlier launch.
  bool fetches = true;
};
inline constexpr size_t kShareProgressBytes = 512;

// Outputs that are parts of sums, so that they are fp32 whatever the dtype: O or dQ; dK and dV.
struct Fp32Outputs {
  bool of_queries = false, of_keys = false;
  bool any() const { return of_queries || of_keys; }
};

// Sums in fp32 to which launches of the backward pass add dK and dV in place of writing them:
// several launches, also on several GPUs, each with some of the queries. Their order is that of the
// kernel. Whoever has them sets them to zero first.
struct KeySums {
  float *dk = nullptr, *dv = nullptr;  // [batch * kv_heads, rows, AttentionKernel::key_sum_columns]
  int64_t rows = 0;                    // the length of the keys, rounded up to kKeySumRows
};
inline constexpr int64_t kKeySumRows = 128, kKeySumBlock = 64;

// What to run, on which device, and with which tiling. Only tunable kernels use `blocks`.
struct Launch {
  const Problem& problem;
  const DeviceInfo& device;
  BlockSizes blocks = {};

  // In device memory, [batch + 1]: how many queries, or keys, the requests before request b have.
  // Null for a problem of equal lengths, and where nothing is launched.
  const int32_t* cu_seqlens_q = nullptr;
  const int32_t* cu_seqlens_k = nullptr;

  // Null: all keys are there. Only for kernels that know gates.
  const KeyGate* gate = nullptr;

  // Null: all queries and keys. Only for kernels that know shares.
  const Share* share = nullptr;

  // What is asked of the outputs' views. Only for kernels that know it.
  Fp32Outputs fp32_outputs = {};

  // Null: dK and dV are written. Only for kernels with store_key_sums.
  const KeySums* key_sums = nullptr;

  // Of a problem with quantize: the attention alone takes what rounding has left in the workspace.
  RunPart part = RunPart::whole;
};

struct AttentionKernel {
  std::string_view name;    // e.g. "cpu_tiled_forward"
  std::string_view family;  // kernels of one design; the provider tiled:FAMILY runs only these
  DeviceKind device;
  Pass pass;
  bool needs_aligned_rows = false;  // every row of every tensor starts at a multiple of 16 bytes
  bool knows_windows = false;       // Problem::window_left and window_right
  bool knows_head_dim_v = false;    // Problem::head_dim_v
  bool knows_lengths = false;       // Problem::lengths, padded and ragged
  bool knows_pages = false;         // Problem::page_size: K and V through a block table
  bool knows_kv_dtype = false;      // Problem::kv_dtype: K and V in bytes, with one factor a head
  bool knows_e4m3 = false;          // Dtype::e4m3, with every Descale that it does not refuse
  bool knows_quantize = false;      // Problem::quantize, with every recipe that it does not refuse,
                                    // and Launch::part

  bool knows_gates = false;  // Launch::gate; keys are read in ascending order

  bool knows_shares = false;  // Launch::share
  int64_t share_rows = 1;     // own_rows of a share are such multiples

  bool knows_fp32_outputs = false;  // Launch::fp32_outputs

  Accumulator accumulator = {};  // of products of bytes

  // A sentence that says why this problem cannot run; empty if it can.
  std::optional<std::string> (*why_unsupported)(const Problem&, const DeviceInfo&);

  // For tunable kernels: the block sizes that fit this problem and device, and the one of them that
  // the tuning table selects. Null for all other kernels. A variant of a tuned kernel may have
  // `choose` alone.
  std::vector<BlockSizes> (*candidates)(const Problem&, const DeviceInfo&) = nullptr;
  BlockSizes (*choose)(const Problem&, const DeviceInfo&) = nullptr;

  // The kernel with its choices for this problem, e.g. "cpu_tiled_forward 256x256 AVX3".
  std::string (*variant)(const Launch&);

  size_t (*workspace_bytes)(const Launch&);

  // Bytes that the kernel's loops read and write in Q, K, V, ... and the workspace.
  int64_t (*requested_bytes)(const Launch&);

  // For a kernel that splits keys: how. Null for all other kernels.
  std::optional<Schedule> (*schedule)(const Launch&) = nullptr;

  // For a GPU kernel: the resources of each CUDA kernel that it launches, in launch order. Null on
  // a CPU. Throws CudaError.
  std::vector<KernelFacts> (*facts)(const Launch&) = nullptr;

  // For a kernel that knows Launch::key_sums: the columns of their rows; and what rounds the sums
  // of a problem with all keys to dK and dV, in blocks of kKeySumBlock keys, of which it takes
  // those that begin with one of `keys`. Null for all other kernels.
  int64_t (*key_sum_columns)(const Problem&) = nullptr;
  void (*store_key_sums)(const Launch&, RowRange keys, const Outputs&, Stream) = nullptr;

  // Makes all launches of the pass; all of it is timed. The workspace is aligned to 256 bytes on a
  // GPU and to 64 bytes on a CPU. Before a session's first launch all of it is kPoisonByte; after
  // that it is as the last launch left it.
  void (*launch)(const Launch&, const Inputs&, const Outputs&, void* workspace, Stream);
};

// Our own GPU kernels, preferred ones first (kernels/cuda_list.cpp). Empty in a build without CUDA.
std::span<const AttentionKernel* const> cuda_kernels();

// All our own kernels in this build (kernels/list.cpp).
std::span<const AttentionKernel* const> all_kernels();

}  // namespace flashbench::kernels
