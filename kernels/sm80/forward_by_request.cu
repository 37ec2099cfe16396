// sm80's forward kernel (forward.cuh) by request: lengths of its own for each, windows, and pages.
#include <algorithm>
#include <array>
#include <numbers>
#include <vector>

#include "kernels/common/blocks.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/common/requests.h"
#include "kernels/sm80/forward.cuh"
#include "kernels/sm80/forward_by_request.h"

namespace flashbench::kernels::sm80 {
namespace {

// One for each head_dim: other head dimensions run with the next larger one.
constexpr std::array kVariants{
    forward_variant<RequestPlace, 64, 64, 64, 4, 2>(),
    forward_variant<RequestPlace, 128, 64, 64, 4, 1>(),
    forward_variant<RequestPlace, 192, 64, 64, 4, 1>(),
    forward_variant<RequestPlace, 256, 64, 64, 4, 1>(),
};

CudaKernel<ForwardByRequestArguments> kernel_at(const Launch& at) {
  return variant_at(kVariants, at).kernel("sm80_forward", at.problem.dtype);
}

}  // namespace

std::vector<BlockSizes> candidates_by_request(const Problem& p, const DeviceInfo& device) {
  return fitting_blocks(kVariants, p, device);
}

KernelFacts facts_by_request(const Launch& at) {
  return kernel_facts(kernel_at(at));
}

void launch_by_request(const Launch& at, const Inputs& in, const Outputs& out, Stream stream) {
  const Problem& p = at.problem;
  if (p.q_len == 0) return;  // no request has a query
  const bool ends_right = p.mask != Mask::causal_top_left;
  const int right = p.mask == Mask::none ? window_keys(p.window_right) : 0;
  const int64_t q_blocks = (p.q_len + at.blocks.q - 1) / at.blocks.q;
  const ForwardByRequestArguments arguments{
      {.tensors = forward_tensors(in, out),
       .heads = static_cast<int>(p.q_heads),
       .heads_per_kv_head = static_cast<int>(p.heads_per_kv_head()),
       .q_len = static_cast<int>(p.q_len),
       .kv_len = static_cast<int>(p.kv_len),
       .head_dim = static_cast<int>(p.head_dim),
       .diagonal = 0,
       .q_blocks = static_cast<int>(q_blocks),
       .batch_heads = static_cast<int>(p.batch * p.q_heads),
       .section_heads = 0,
       .scale_log2 = static_cast<float>(p.softmax_scale() * std::numbers::log2e)},
      at.cu_seqlens_q,
      at.cu_seqlens_k,
      static_cast<int>(p.batch),
      p.is_ragged(),
      p.mask != Mask::none,
      p.is_ragged() ? 0 : p.q_heads * p.q_len,
      p.is_ragged() ? p.q_tokens() : p.q_len,
      -window_keys(p.window_left),
      right + 1,
      ends_right,
      in.k.pages.table,
      in.k.pages.stride,
      Divisor(std::min(p.page_size.value_or(kMaxLength), kMaxLength)),
  };
  const int64_t slots =
      p.lengths ? block_slots(p.q_tokens(), p.batch, at.blocks.q) : p.batch * q_blocks;
  launch_kernel(kernel_at(at), slots * p.q_heads, arguments, stream);
}

}  // namespace flashbench::kernels::sm80
