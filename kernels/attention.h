// The descriptor by which a kernel of our own is listed, chosen, launched and accounted for.
// Kernels know tensors and launch arguments; nothing of JSON, the command line or timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/device.h"

namespace flashbench::kernels {

// How a kernel cuts its problem up. Each kernel says which of these it can run.
struct BlockSizes {
  int q = 0, kv = 0;  // rows of a block of Q, and of K and V
  int warps = 0;      // of a thread block
  int stages = 0;     // blocks in flight between global and shared memory

  bool operator==(const BlockSizes&) const = default;
};

// What to run, where, and how it is cut up. `blocks` counts only for kernels that can be tuned.
struct Launch {
  const Problem& problem;
  const DeviceInfo& device;
  BlockSizes blocks = {};
};

struct AttentionKernel {
  std::string_view name;    // e.g. "cpu_tiled_forward"
  std::string_view family;  // kernels of one design; the provider tiled:FAMILY runs only these
  DeviceKind device;
  Pass pass;
  bool needs_aligned_rows = false;  // every row of every tensor starts at a multiple of 16 bytes

  // A sentence that says why this problem cannot run; empty if it can.
  std::optional<std::string> (*why_unsupported)(const Problem&, const DeviceInfo&);

  // Of kernels that can be tuned: the block sizes that fit this problem and device, and the one of
  // them that the tuning table names. Null for the others; a variant of a kernel that is tuned may
  // have but the choice.
  std::vector<BlockSizes> (*candidates)(const Problem&, const DeviceInfo&) = nullptr;
  BlockSizes (*choose)(const Problem&, const DeviceInfo&) = nullptr;

  // The kernel with its choices for this problem, e.g. "cpu_tiled_forward 256x256 AVX3".
  std::string (*variant)(const Launch&);

  size_t (*workspace_bytes)(const Launch&);

  // Bytes requested from Q, K, V, ... and the workspace by the real tile loop.
  int64_t (*requested_bytes)(const Launch&);

  // Of a GPU kernel: what its own kernels take, in the order of their launches; null on a CPU.
  // Throws CudaError.
  std::vector<KernelFacts> (*facts)(const Launch&) = nullptr;

  // Everything that is timed: all launches of the pass. The workspace is aligned to 256 bytes on a
  // GPU, 64 on a CPU.
  void (*launch)(const Launch&, const Inputs&, const Outputs&, void* workspace, Stream);
};

// Those that run on a GPU, the preferred ones first (kernels/cuda_list.cpp); none in a build
// without CUDA.
std::span<const AttentionKernel* const> cuda_kernels();

// Every kernel of our own in this build (kernels/list.cpp).
std::span<const AttentionKernel* const> all_kernels();

}  // namespace flashbench::kernels
