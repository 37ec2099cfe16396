// Host code of the forward kernel for Hopper: requirements, compiled variants, launch.
#include "kernels/sm90/forward.cuh"

#include <array>
#include <optional>
#include <string>

#include "kernels/attention.h"
#include "kernels/common/blocks.h"
#include "kernels/common/fused_forward.h"
#include "kernels/common/half_types.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/sm90/forward_blocks.h"
#include "kernels/sm90/tensor_map.h"
#include "kernels/sm90/variant.h"

namespace flashbench::kernels::sm90 {
namespace {

template <Config kConfig>
constexpr Variant<Arguments> variant() {
  using Half = Forward<__half, kConfig>;
  return variant_of<Half>(forward_kernel<Half>, forward_kernel<Forward<__nv_bfloat16, kConfig>>);
}

// The candidates of `flashbench tune`.
constexpr std::array kVariants{
    variant<configuration(64, 192, 128, 2)>(),
    variant<configuration(64, 192, 64, 4)>(),
    variant<configuration(96, 192, 64, 4)>(),
    variant<configuration(128, 192, 64, 4)>(),
    variant<configuration(128, 192, 80, 3)>(),
    variant<configuration(192, 128, 64, 2)>(),
    variant<configuration(192, 128, 80, 2)>(),
    variant<configuration(256, 128, 64, 2)>(),
    variant<configuration(256, 128, 80, 2)>(),
    // For short problems.
    variant<configuration(64, 64, 64, 2)>(),
    variant<configuration(64, 64, 80, 2)>(),
    variant<configuration(96, 64, 64, 2)>(),
    variant<configuration(96, 64, 80, 2)>(),
    variant<configuration(128, 64, 64, 2)>(),
    variant<configuration(128, 64, 80, 2)>(),
};

std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
  if (auto why = why_not_half(p.dtype)) return why;
  if (device.compute_capability != 90) {
    return "needs a GPU of compute capability 9.0: wgmma is Hopper's alone";
  }
  if (std::max(p.q_len, p.kv_len) >= kMaxLength) return "lengths must be below 2^30";
  constexpr int64_t kMaxTiles = int64_t{1} << 30;  // leaves room for one more per thread block
  if (p.batch * p.q_heads * (p.q_len / 64 + 1) > kMaxTiles) return "too many heads and rows";
  return std::nullopt;
}

std::vector<BlockSizes> candidates(const Problem& p, const DeviceInfo& device) {
  return fitting_blocks(kVariants, p, device);
}

BlockSizes choose(const Problem& p, const DeviceInfo& device) {
  const std::vector<BlockSizes> fitting = candidates(p, device);
  return shortest_blocks(p, device, fitting, choose_blocks("sm90", p, device, fitting));
}

CudaKernel<Arguments> kernel_at(const Launch& at) {
  return variant_at(kVariants, at).kernel("sm90_forward", at.problem.dtype);
}

std::vector<KernelFacts> facts(const Launch& at) {
  return {kernel_facts(kernel_at(at))};
}

std::string describe_variant(const Launch& at) {
  return "sm90_forward " + describe(at.blocks);
}

// The workspace is Arguments::last_taken. Poisoned memory initialises it to UINT_MAX.
static_assert(kPoisonByte == 0xff);
size_t workspace_bytes(const Launch&) {
  return sizeof(unsigned);
}

void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  const Problem& p = at.problem;
  const int64_t q_blocks = (p.q_len + at.blocks.q - 1) / at.blocks.q;
  const Arguments arguments{
      .q = tensor_map(in.q, kConsumerRows),
      .k = tensor_map(in.k, at.blocks.kv),
      .v = tensor_map(in.v, at.blocks.kv),
      .staged_o = tensor_map(out.o, kWarpRows),
      .o = out.o.data,
      .logsumexp = out.logsumexp,
      .o_batch_stride = out.o.batch_stride,
      .o_head_stride = out.o.head_stride,
      .o_row_stride = out.o.row_stride,
      .heads = static_cast<int>(p.q_heads),
      .heads_per_kv_head = static_cast<int>(p.heads_per_kv_head()),
      .q_len = static_cast<int>(p.q_len),
      .kv_len = static_cast<int>(p.kv_len),
      .head_dim = static_cast<int>(p.head_dim),
      .diagonal = static_cast<int>(diagonal(p)),
      .q_blocks = static_cast<int>(q_blocks),
      .batch_heads = static_cast<int>(p.batch * p.q_heads),
      .section_heads = static_cast<int>(section_heads(p, at.blocks, at.device)),
      .last_taken = static_cast<unsigned*>(workspace),
      .scale_log2 = static_cast<float>(p.softmax_scale() * std::numbers::log2e),
  };
  const int64_t tiles = q_blocks * p.batch * p.q_heads;
  const int64_t at_once =
      thread_blocks_at_once(compiled_head_dim(kVariants, p.head_dim), at.blocks.q);
  launch_kernel(kernel_at(at), std::min(tiles, at_once * at.device.threads), arguments, stream);
}

}  // namespace
}  // namespace flashbench::kernels::sm90

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward{.name = "sm90_forward",
                                          .family = "sm90",
                                          .device = DeviceKind::cuda,
                                          .pass = Pass::forward,
                                          .needs_aligned_rows = true,
                                          .why_unsupported = sm90::why_unsupported,
                                          .candidates = sm90::candidates,
                                          .choose = sm90::choose,
                                          .variant = sm90::describe_variant,
                                          .workspace_bytes = sm90::workspace_bytes,
                                          .requested_bytes = fused_forward_requested_bytes,
                                          .facts = sm90::facts,
                                          .launch = sm90::launch};

}  // namespace flashbench::kernels
