// Host code of the forward kernel for Hopper on e4m3: requirements, compiled variants, launch.
#include <algorithm>
#include <array>
#include <numbers>
#include <optional>
#include <string>

#include "attention/recipe.h"
#include "kernels/attention.h"
#include "kernels/common/blocks.h"
#include "kernels/common/fused_forward.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/sm90/forward_blocks.h"
#include "kernels/sm90/forward_e4m3.cuh"
#include "kernels/sm90/forward_pieces.h"
#include "kernels/sm90/quantize.h"
#include "kernels/sm90/tensor_map.h"
#include "kernels/sm90/transpose_v.cuh"

namespace flashbench::kernels::sm90 {
namespace {

template <int kColumns>
__global__ void __launch_bounds__(transposing_threads(kColumns))
    transpose_v_kernel(const __grid_constant__ TransposeArguments arguments) {
  ptx::griddepcontrol_launch_dependents();
  transpose_v_block<kColumns>(arguments);
}

struct E4m3Variant {
  int head_dim;
  BlockSizes blocks;
  int threads, shared_bytes;
  void (*function)(E4m3Arguments);
};

template <E4m3Config kConfig>
constexpr E4m3Variant variant() {
  using Kernel = ForwardE4m3<kConfig>;
  return {Kernel::kHeadDim,
          {.q = Kernel::kBlockQ,
           .kv = Kernel::kBlockKv,
           .warps = Kernel::kThreads / 32,
           .stages = Kernel::kStages},
          Kernel::kThreads,
          sizeof(typename Kernel::Shared),
          forward_e4m3_kernel<Kernel>};
}

template <bool kPromoted>
constexpr std::array kE4m3Variants{
    variant<e4m3_configuration(64, kPromoted)>(),
    variant<e4m3_configuration(128, kPromoted)>(),
    variant<e4m3_configuration(256, kPromoted)>(),
};

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t q_blocks(const Problem& p, int block_q) {
  return divide_up(p.q_len, block_q);
}

int64_t tiles(const Problem& p, int block_q) {
  return q_blocks(p, block_q) * p.q_heads * p.batch;
}

std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
  if (!p.is_quantized()) return "it multiplies bytes only: dtype e4m3, or quantize";
  const Descale descale = p.is_scaled() ? p.descale : recipe_of(p.quantize).descale;
  if (descale == Descale::per_block) return "it takes one factor a head at most";
  if (p.is_scaled() && p.head_dim % 16 != 0) return "rows of e4m3 must be multiples of 16 bytes";
  if (!p.is_scaled() && !is_quantized_head_dim(p.head_dim)) {
    return "it rounds rows of head_dim 64, 128 and 256";
  }
  if (device.compute_capability != 90) {
    return "needs a GPU of compute capability 9.0: wgmma is Hopper's alone";
  }
  if (std::max(p.q_len, p.kv_len) >= kMaxLength) return "lengths must be below 2^30";
  constexpr int64_t kMaxTiles = int64_t{1} << 30;  // leaves room for one more per thread block
  if (tiles(p, kConsumerRows) > kMaxTiles) return "too many heads and rows";
  return std::nullopt;
}

// The workspace begins with Arguments::last_taken, which poisoned memory initialises to UINT_MAX.
// Transposed V follows, with zeros behind its columns and keys, then what the recipe takes, and
// what pieces of tiles do.
static_assert(kPoisonByte == 0xff);
constexpr size_t kTransposedAt = 256;

// The columns of a thread block that transposes.
int columns_at_once(const Problem& p) {
  return p.head_dim <= 64 ? 64 : 128;
}

TransposeArguments transpose_arguments(const Problem& p, const ConstTensorView& v,
                                       void* workspace) {
  return {.from = static_cast<const uint8_t*>(v.data),
          .batch_stride = v.batch_stride,
          .head_stride = v.head_stride,
          .row_stride = v.row_stride,
          .to = static_cast<uint8_t*>(workspace) + kTransposedAt,
          .heads = static_cast<int>(p.kv_heads),
          .keys = static_cast<int>(p.kv_len),
          .head_dim = static_cast<int>(p.head_dim),
          .key_blocks = static_cast<int>(divide_up(p.kv_len, kTransposedKeys)),
          .column_blocks = transposed_columns(static_cast<int>(p.head_dim)) / columns_at_once(p)};
}

// Transposed V with blocks of keys in place of heads, and the heads of all requests in place of
// requests.
ConstTensorView transposed_view(const Problem& p, const TransposeArguments& a) {
  const int columns = transposed_columns(a.head_dim);
  const int64_t block = int64_t{columns} * kTransposedKeys;
  return {a.to,           Dtype::e4m3,     p.batch * p.kv_heads, a.key_blocks,
          columns,        kTransposedKeys, a.key_blocks * block, block,
          kTransposedKeys};
}

size_t quantized_at(const Problem& p) {
  const ConstTensorView v = transposed_view(p, transpose_arguments(p, {}, nullptr));
  return kTransposedAt + static_cast<size_t>(v.batch * v.batch_stride);
}

size_t pieces_at(const Problem& p) {
  const size_t end = quantized_at(p) + (p.is_scaled() ? 0 : quantized_bytes(p));
  return static_cast<size_t>(divide_up(static_cast<int64_t>(end), 256) * 256);
}

CudaKernel<TransposeArguments> transpose_kernel(const Problem& p) {
  const int columns = columns_at_once(p);
  return {"sm90_transpose_v", columns == 64 ? transpose_v_kernel<64> : transpose_v_kernel<128>,
          transposing_threads(columns)};
}

template <bool kPromoted>
struct Family {
  static constexpr const auto& kVariants = kE4m3Variants<kPromoted>;
  static constexpr std::string_view kName = kPromoted ? "sm90_e4m3" : "sm90_e4m3_unpromoted";

  static std::vector<BlockSizes> candidates(const Problem& p, const DeviceInfo& device) {
    return fitting_blocks(kVariants, p, device);
  }

  static BlockSizes choose(const Problem& p, const DeviceInfo& device) {
    return choose_blocks(kName, p, device, candidates(p, device));
  }

  static CudaKernel<E4m3Arguments> kernel_at(const Launch& at) {
    const E4m3Variant& variant = variant_at(kVariants, at);
    return {kName, variant.function, variant.threads, variant.shared_bytes};
  }

  static std::vector<KernelFacts> facts(const Launch& at) {
    std::vector<KernelFacts> facts;
    if (at.problem.is_scaled()) {
      facts.push_back(kernel_facts(transpose_kernel(at.problem)));
    } else {
      facts = quantize_facts(at.problem, at.device);
    }
    facts.push_back(kernel_facts(kernel_at(at)));
    return facts;
  }

  // Where all tiles have as many keys, or there is one wave.
  static SplitTiles split_tiles_of(const Launch& at) {
    const Problem& p = at.problem;
    const int64_t all = tiles(p, at.blocks.q);
    if (p.is_masked() && all >= at.device.threads) return {};
    return split_tiles(all, at.device.threads, p.kv_len, at.blocks,
                       compiled_head_dim(kVariants, p.head_dim));
  }

  static size_t workspace_bytes(const Launch& at) {
    return pieces_at(at.problem) + split_tiles_of(at).workspace_bytes();
  }

  static std::string describe_variant(const Launch& at) {
    return std::string(kName) + " " + describe(at.blocks) + split_tiles_of(at).describe();
  }

  static void launch(const Launch& at, const Inputs& inputs, const Outputs& out, void* workspace,
                     Stream stream) {
    const Problem& p = at.problem;
    const TransposeArguments transpose = transpose_arguments(p, inputs.v, workspace);
    Inputs in = inputs;
    double scale = p.softmax_scale();
    if (p.is_scaled()) {
      launch_kernel(transpose_kernel(p),
                    p.batch * p.kv_heads * transpose.column_blocks * transpose.key_blocks,
                    transpose, stream);
    } else {
      in = quantize(at, inputs, static_cast<char*>(workspace) + quantized_at(p), transpose.to,
                    stream);
      if (at.part == RunPart::rounding) return;
      // The Hadamard matrix has scaled the products.
      if (recipe_of(p.quantize).hadamard) scale /= static_cast<double>(p.head_dim);
    }

    const int head_dim = compiled_head_dim(kVariants, p.head_dim);
    E4m3Arguments a{};
    a.q = tensor_map(in.q, kConsumerRows, std::min(head_dim, 128));
    a.k = tensor_map(in.k, at.blocks.kv, std::min(head_dim, 128));
    a.v = tensor_map(transposed_view(p, transpose), head_dim, at.blocks.kv);
    a.staged_o = tensor_map(out.o, kWarpRows);
    a.logsumexp = out.logsumexp;
    a.heads = static_cast<int>(p.q_heads);
    a.heads_per_kv_head = static_cast<int>(p.heads_per_kv_head());
    a.q_len = static_cast<int>(p.q_len);
    a.kv_len = static_cast<int>(p.kv_len);
    a.diagonal = static_cast<int>(diagonal(p));
    a.q_blocks = static_cast<int>(q_blocks(p, at.blocks.q));
    a.missing_rows = static_cast<int>(missing_rows(p, at.blocks, p.q_len));
    a.batch_heads = static_cast<int>(p.batch * p.q_heads);
    a.section_heads = static_cast<int>(section_heads(p, at.blocks, at.device));
    a.order = tile_order(p, tiles(p, at.blocks.q), a.section_heads, at.device.threads);
    a.last_taken = static_cast<unsigned*>(workspace);
    a.scale_log2 = static_cast<float>(scale * std::numbers::log2e_v<double>);
    a.q_descales = in.q.descales;
    a.k_descales = in.k.descales;
    a.v_descales = in.v.descales;
    a.kv_heads = static_cast<int>(p.kv_heads);
    a.only_v_is_made = p.is_scaled();
    const SplitTiles split = split_tiles_of(at);
    const int64_t all = tiles(p, at.blocks.q);
    a.pieces = split.arguments(all, static_cast<char*>(workspace) + pieces_at(p));
    launch_kernel(kernel_at(at), std::min<int64_t>(split.items(all), at.device.threads), a, stream,
                  Start::early);
  }

  static constexpr AttentionKernel descriptor() {
    return {.name = kName,
            .family = kName,
            .device = DeviceKind::cuda,
            .pass = Pass::forward,
            .needs_aligned_rows = true,
            .knows_e4m3 = true,
            .knows_quantize = true,
            .accumulator = {.truncates = true,
                            .promote_every = kPromoted ? E4m3Config::kBlockKv : 0,
                            .p_exponent = E4m3Config::kPExponent},
            .why_unsupported = why_unsupported,
            .candidates = candidates,
            .choose = choose,
            .variant = describe_variant,
            .workspace_bytes = workspace_bytes,
            .requested_bytes = requested_bytes_of_tiles,
            .facts = facts,
            .launch = launch};
  }
};

}  // namespace
}  // namespace flashbench::kernels::sm90

namespace flashbench::kernels {

extern const AttentionKernel kSm90E4m3 = sm90::Family<true>::descriptor();

// Its sums of P V stay in the tensor cores' accumulators to the end.
extern const AttentionKernel kSm90E4m3Unpromoted = sm90::Family<false>::descriptor();

}  // namespace flashbench::kernels
