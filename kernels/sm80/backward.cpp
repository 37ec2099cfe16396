#include "kernels/sm80/backward.h"

#include <algorithm>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/blocks.h"
#include "kernels/common/mask.h"
#include "kernels/sm80/requirements.h"

namespace flashbench::kernels::sm80 {
namespace {

std::vector<BlockSizes> candidates(const Problem& p, const DeviceInfo& device) {
  return fitting_blocks(main_variants(), p, device);
}

BlockSizes choose(const Problem& p, const DeviceInfo& device) {
  return choose_blocks("sm80", p, device, candidates(p, device));
}

std::optional<std::string> why_unsupported_backward(const Problem& p, const DeviceInfo& device) {
  if (auto why = why_unsupported(p, device)) return why;
  if (candidates(p, device).empty()) {
    return "a thread block of this GPU has too little shared memory for this head_dim";
  }
  return std::nullopt;
}

constexpr size_t align_up(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Carves the workspace; with a null base, only its size is meaningful.
struct Workspace {
  Workspace(const Problem& p, void* base) {
    padded_q = (p.q_len + kRowPadding - 1) / kRowPadding * kRowPadding;
    const size_t rows = static_cast<size_t>(p.batch * p.q_heads * padded_q);
    char* at = static_cast<char*>(base);
    const auto take = [&](size_t size) {
      char* taken = at == nullptr ? nullptr : at + bytes;
      bytes += align_up(size);
      return taken;
    };
    dq_sums = reinterpret_cast<float*>(take(rows * compiled_head_dim(p.head_dim) * sizeof(float)));
    logsumexp_base_2 = reinterpret_cast<float*>(take(rows * sizeof(float)));
    d = reinterpret_cast<float*>(take(rows * sizeof(float)));
    turns = reinterpret_cast<int*>(take(rows / kTurnRows * sizeof(int)));
    tickets = reinterpret_cast<int*>(take(sizeof(int)));
  }
  float* dq_sums;
  float* logsumexp_base_2;
  float* d;
  int* turns;
  int* tickets;
  int64_t padded_q = 0;
  size_t bytes = 0;
};

template <bool kDeterministic>
const CudaKernel<BackwardArguments>& main_kernel(const Launch& at) {
  const MainVariant& variant = variant_at(main_variants(), at);
  return variant.kernels[at.problem.dtype == Dtype::bf16][kDeterministic];
}

template <bool kDeterministic>
std::vector<KernelFacts> facts(const Launch& at) {
  return {kernel_facts(dot_do_o(at.problem).kernel), kernel_facts(main_kernel<kDeterministic>(at)),
          kernel_facts(convert_dq(at.problem).kernel)};
}

template <bool kDeterministic>
std::string variant(const Launch& at) {
  return (kDeterministic ? "sm80_backward_deterministic " : "sm80_backward ") + describe(at.blocks);
}

// How many K/V heads' thread blocks are mixed. If causal, the first keys make the most work, and
// are best not left for the end: the first keys of all heads of a section come first. Its Q, dO and
// sums of dQ share the L2 cache.
int64_t section_heads(const Problem& p) {
  if (p.mask == Mask::none) return 1;
  constexpr int64_t kSectionBytes = int64_t{32} << 20;
  const int64_t head_bytes = p.heads_per_kv_head() * p.q_len * compiled_head_dim(p.head_dim) *
                             (2 * element_size(p.dtype) + static_cast<int64_t>(sizeof(float)));
  return std::clamp<int64_t>(kSectionBytes / head_bytes, 1, p.batch * p.kv_heads);
}

Strided strided(const ConstTensorView& t) {
  return {const_cast<void*>(t.data), t.batch_stride, t.head_stride, t.row_stride};
}

template <bool kDeterministic>
void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  const Problem& p = at.problem;
  const BackwardArguments args = backward_arguments(p, in, out, workspace);
  const int64_t key_blocks = (p.kv_len + at.blocks.kv - 1) / at.blocks.kv;
  launch_rows(dot_do_o(p), p, args, stream);
  launch_kernel(main_kernel<kDeterministic>(at), p.batch * p.kv_heads * key_blocks, args, stream);
  launch_rows(convert_dq(p), p, args, stream);
}

}  // namespace

void launch_rows(const RowKernel& rows, const Problem& p, const BackwardArguments& args,
                 Stream stream) {
  launch_kernel(rows.kernel, p.batch * p.q_heads * (args.padded_q / rows.rows), args, stream);
}

size_t backward_workspace_bytes(const Launch& at) {
  return Workspace(at.problem, nullptr).bytes;
}

BackwardArguments backward_arguments(const Problem& p, const Inputs& in, const Outputs& out,
                                     void* workspace) {
  const Workspace space(p, workspace);
  const double scale = p.softmax_scale();
  return {.q = strided(in.q),
          .k = strided(in.k),
          .v = strided(in.v),
          .o = strided(in.o),
          .d_o = strided(in.d_o),
          .dq = strided(out.dq),
          .dk = strided(out.dk),
          .dv = strided(out.dv),
          .logsumexp = in.logsumexp,
          .dq_sums = space.dq_sums,
          .logsumexp_base_2 = space.logsumexp_base_2,
          .d = space.d,
          .turns = space.turns,
          .tickets = space.tickets,
          .batch = static_cast<int>(p.batch),
          .q_heads = static_cast<int>(p.q_heads),
          .kv_heads = static_cast<int>(p.kv_heads),
          .group = static_cast<int>(p.heads_per_kv_head()),
          .q_len = static_cast<int>(p.q_len),
          .kv_len = static_cast<int>(p.kv_len),
          .head_dim = static_cast<int>(p.head_dim),
          .padded_q = static_cast<int>(space.padded_q),
          .section_heads = static_cast<int>(section_heads(p)),
          .key_end = static_cast<int>(p.visible_keys(p.q_len - 1)),
          .diagonal = static_cast<int>(diagonal(p)),
          .scale = static_cast<float>(scale),
          .scale_log2 = static_cast<float>(scale * std::numbers::log2e)};
}

// First: O, dO and L read; D, L in base 2 and the zeros of dQ's sums written. Main: K and V read
// as far as any query sees them, dK and dV written; Q, dO, L and D read by every thread block whose
// keys some query of the block sees, and dQ's sums added to, which counts once. Last: the sums
// read, dQ written.
int64_t backward_requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  const int64_t element = element_size(p.dtype);
  constexpr int64_t kFloat = sizeof(float);
  const int64_t key_end = p.visible_keys(p.q_len - 1);
  int64_t query_rows = 0;  // visited by all thread blocks of one query head
  for (int64_t key = 0; key < key_end; key += at.blocks.kv) {
    query_rows += p.q_len - first_query_that_sees(p, key) / at.blocks.q * at.blocks.q;
  }
  const int64_t visited = p.batch * p.q_heads * query_rows;
  const int64_t first = p.query_elements() * (2 * element + kFloat) + p.query_rows() * 3 * kFloat;
  const int64_t main = p.batch * p.kv_heads * (key_end + p.kv_len) * p.head_dim * 2 * element +
                       visited * (p.head_dim * (2 * element + kFloat) + 2 * kFloat);
  const int64_t last = p.query_elements() * (kFloat + element);
  return first + main + last;
}

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
                                           .workspace_bytes = sm80::backward_workspace_bytes,
                                           .requested_bytes = sm80::backward_requested_bytes,
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
    .workspace_bytes = sm80::backward_workspace_bytes,
    .requested_bytes = sm80::backward_requested_bytes,
    .facts = sm80::facts<true>,
    .launch = sm80::launch<true>};

}  // namespace flashbench::kernels
