// sm80's forward kernel (forward.cuh) for batches of equal lengths.
#include <array>
#include <numbers>
#include <string>

#include "kernels/attention.h"
#include "kernels/common/blocks.h"
#include "kernels/common/fused_forward.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/common/requests.h"
#include "kernels/common/tensor_cores.h"
#include "kernels/sm80/forward.cuh"
#include "kernels/sm80/forward_by_request.h"

namespace flashbench::kernels::sm80 {
namespace {

// The candidates of `flashbench tune`.
constexpr std::array kVariants{
    forward_variant<EqualPlace, 32, 128, 64, 4, 2>(),
    forward_variant<EqualPlace, 32, 128, 128, 4, 2>(),
    forward_variant<EqualPlace, 64, 128, 64, 4, 2>(),
    forward_variant<EqualPlace, 64, 128, 128, 4, 1>(),
    forward_variant<EqualPlace, 96, 128, 64, 4, 2>(),
    forward_variant<EqualPlace, 96, 128, 64, 4, 1>(),
    forward_variant<EqualPlace, 128, 128, 64, 4, 1>(),
    forward_variant<EqualPlace, 128, 128, 32, 4, 2>(),
    forward_variant<EqualPlace, 192, 64, 64, 4, 1>(),
    forward_variant<EqualPlace, 192, 64, 96, 4, 1>(),
    forward_variant<EqualPlace, 192, 128, 64, 8, 1>(),
    forward_variant<EqualPlace, 256, 64, 64, 4, 1>(),
    forward_variant<EqualPlace, 256, 128, 64, 8, 1>(),
};

std::vector<BlockSizes> candidates(const Problem& p, const DeviceInfo& device) {
  return is_by_request(p) ? candidates_by_request(p, device) : fitting_blocks(kVariants, p, device);
}

BlockSizes choose(const Problem& p, const DeviceInfo& device) {
  const std::vector<BlockSizes> fitting = candidates(p, device);
  return is_by_request(p) ? fitting.front() : choose_blocks("sm80", p, device, fitting);
}

CudaKernel<ForwardArguments> kernel_at(const Launch& at) {
  return variant_at(kVariants, at).kernel("sm80_forward", at.problem.dtype);
}

std::vector<KernelFacts> facts(const Launch& at) {
  if (is_by_request(at.problem)) return {facts_by_request(at)};
  return {kernel_facts(kernel_at(at))};
}

std::string variant(const Launch& at) {
  return "sm80_forward " + describe(at.blocks);
}

size_t workspace_bytes(const Launch&) {
  return 0;
}

void launch(const Launch& at, const Inputs& in, const Outputs& out, void*, Stream stream) {
  const Problem& p = at.problem;
  if (is_by_request(p)) return launch_by_request(at, in, out, stream);
  const int64_t q_blocks = (p.q_len + at.blocks.q - 1) / at.blocks.q;
  const ForwardArguments arguments{
      .tensors = forward_tensors(in, out),
      .heads = static_cast<int>(p.q_heads),
      .heads_per_kv_head = static_cast<int>(p.heads_per_kv_head()),
      .q_len = static_cast<int>(p.q_len),
      .kv_len = static_cast<int>(p.kv_len),
      .head_dim = static_cast<int>(p.head_dim),
      .diagonal = static_cast<int>(diagonal(p)),
      .q_blocks = static_cast<int>(q_blocks),
      .batch_heads = static_cast<int>(p.batch * p.q_heads),
      .section_heads = static_cast<int>(section_heads(p, at.blocks, at.device)),
      .scale_log2 = static_cast<float>(p.softmax_scale() * std::numbers::log2e),
  };
  launch_kernel(kernel_at(at), q_blocks * p.batch * p.q_heads, arguments, stream);
}

}  // namespace
}  // namespace flashbench::kernels::sm80

namespace flashbench::kernels {

extern const AttentionKernel kSm80Forward{.name = "sm80_forward",
                                          .family = "sm80",
                                          .device = DeviceKind::cuda,
                                          .pass = Pass::forward,
                                          .needs_aligned_rows = true,
                                          .knows_windows = true,
                                          .knows_lengths = true,
                                          .knows_pages = true,
                                          .why_unsupported = why_no_tensor_cores,
                                          .candidates = sm80::candidates,
                                          .choose = sm80::choose,
                                          .variant = sm80::variant,
                                          .workspace_bytes = sm80::workspace_bytes,
                                          .requested_bytes = fused_forward_requested_bytes,
                                          .facts = sm80::facts,
                                          .launch = sm80::launch};

}  // namespace flashbench::kernels
