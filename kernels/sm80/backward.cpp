#include "kernels/sm80/backward.h"

#include <optional>
#include <string>
#include <vector>

#include "kernels/common/blocks.h"
#include "kernels/common/half_types.h"
#include "kernels/common/tensor_cores.h"

namespace flashbench::kernels::sm80 {
namespace {

std::vector<BlockSizes> candidates(const Problem& p, const DeviceInfo& device) {
  return fitting_blocks(main_variants(), p, device);
}

BlockSizes choose(const Problem& p, const DeviceInfo& device) {
  return choose_blocks("sm80", p, device, candidates(p, device));
}

std::optional<std::string> why_unsupported_backward(const Problem& p, const DeviceInfo& device) {
  if (auto why = why_no_tensor_cores(p, device)) return why;
  if (candidates(p, device).empty()) {
    return "a thread block of this GPU has too little shared memory for this head_dim";
  }
  return std::nullopt;
}

template <bool kDeterministic>
const CudaKernel<backward::Arguments>& main_kernel(const Launch& at) {
  const MainVariant& variant = variant_at(main_variants(), at);
  return variant.kernels[for_half(at.problem.dtype, 0, 1)][kDeterministic];
}

template <bool kDeterministic>
std::vector<KernelFacts> facts(const Launch& at) {
  return {kernel_facts(backward::dot_do_o(at.problem).kernel),
          kernel_facts(main_kernel<kDeterministic>(at)),
          kernel_facts(backward::convert(at.problem).kernel)};
}

template <bool kDeterministic>
std::string variant(const Launch& at) {
  return (kDeterministic ? "sm80_backward_deterministic " : "sm80_backward ") +
         backward::describe_main(at);
}

template <bool kDeterministic>
void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  const backward::Arguments args = backward::arguments(at, in, out, workspace, kDeterministic);
  backward::launch_first(at.problem, args, stream);
  launch_kernel(main_kernel<kDeterministic>(at), backward::main_thread_blocks(args), args, stream);
  backward::launch_last(at.problem, args, stream);
}

template <bool kDeterministic>
size_t workspace_bytes(const Launch& at) {
  return backward::workspace_bytes(at, kDeterministic);
}

template <bool kDeterministic>
int64_t requested_bytes(const Launch& at) {
  return backward::requested_bytes(at, kDeterministic);
}

}  // namespace

}  // namespace flashbench::kernels::sm80

namespace flashbench::kernels {

extern const AttentionKernel kSm80Backward{.name = "sm80_backward",
                                           .family = "sm80",
                                           .device = DeviceKind::cuda,
                                           .pass = Pass::backward,
                                           .needs_aligned_rows = true,
                                           .why_unsupported = sm80::why_unsupported_backward,
                                           .candidates = sm80::candidates,
                                           .choose = sm80::choose,
                                           .variant = sm80::variant<false>,
                                           .workspace_bytes = sm80::workspace_bytes<false>,
                                           .requested_bytes = sm80::requested_bytes<false>,
                                           .facts = sm80::facts<false>,
                                           .launch = sm80::launch<false>};

extern const AttentionKernel kSm80BackwardDeterministic{
    .name = "sm80_backward_deterministic",
    .family = "sm80_deterministic",
    .device = DeviceKind::cuda,
    .pass = Pass::backward,
    .needs_aligned_rows = true,
    .why_unsupported = sm80::why_unsupported_backward,
    .choose = sm80::choose,
    .variant = sm80::variant<true>,
    .workspace_bytes = sm80::workspace_bytes<true>,
    .requested_bytes = sm80::requested_bytes<true>,
    .facts = sm80::facts<true>,
    .launch = sm80::launch<true>};

}  // namespace flashbench::kernels
