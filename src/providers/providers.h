// One function per provider; list.cpp calls them all.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/attention.h"
#include "providers/provider.h"

namespace flashbench {

// Standard attention on the CPU: BLAS products with S and P in memory.
std::unique_ptr<Provider> make_naive_provider();

// A kernel of 8-bit products on the CPU, step by step.
std::unique_ptr<Provider> make_emulated_provider(std::string_view name, const Accumulator&,
                                                 Dtype output = Dtype::bf16);

// Standard attention on a GPU: cuBLAS products with S and P in memory, both in the problem's dtype
// (S of bytes in bf16), or S in fp32.
enum class CudaNaiveScores { own_dtype, fp32 };
std::unique_ptr<Provider> make_cuda_naive_provider(CudaNaiveScores);

// Unfused attention on a GPU with K and V in blocks, through cuBLAS, and the online softmax in
// memory; forward only.
std::unique_ptr<Provider> make_blocked_provider();

// cuDNN's fused attention; on request, its backward pass sums in a fixed order.
enum class CudnnSums { any_order, fixed_order };
std::unique_ptr<Provider> make_cudnn_provider(CudnnSums);

// The GPU providers; none in a build without CUDA.
std::vector<std::unique_ptr<Provider>> make_cuda_providers();

// The names of the providers that exist only on a GPU, known also to a build without CUDA; so are
// those that begin with kFamilyPrefix.
inline constexpr std::array<std::string_view, 4> kCudaOnlyNames{"naive:fp32", "blocked", "cudnn",
                                                                "cudnn:deterministic"};
inline constexpr std::string_view kFamilyPrefix = "tiled:";

// Runs the first of our own kernels for this kind of device that supports the problem; with a
// family, only kernels of that family.
std::unique_ptr<Provider> make_tiled_provider(DeviceKind device, std::string_view family = {});

// Our kernels on several devices that share a problem, an algorithm each (src/providers/split/).
std::vector<std::unique_ptr<Provider>> make_split_providers(DeviceKind);

// Why the device cannot run the problem, if that has more gpus than --device names; a CPU has any
// number.
std::optional<std::string> why_too_few_gpus(const Problem&, const DeviceInfo&);

// For a problem that has gpus: the work of that device of a group which has the most, done while
// the others are idle. It writes no other rows. Null where the device has no group.
std::unique_ptr<Session> make_share_session(const Problem&, Device&);

// Makes a session of one of our own kernels with these block sizes.
std::unique_ptr<Session> make_kernel_session(const kernels::AttentionKernel&,
                                             const kernels::BlockSizes&, const Problem&, Device&);

}  // namespace flashbench
