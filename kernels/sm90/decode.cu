// Host code of the decoding kernel for Hopper: requirements, compiled variants, launch.
#include "kernels/sm90/decode.cuh"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "kernels/attention.h"
#include "kernels/common/blocks.h"
#include "kernels/common/half_types.h"
#include "kernels/common/mask.h"
#include "kernels/sm90/cluster_launch.h"
#include "kernels/sm90/decode_splits.h"
#include "kernels/sm90/variant.h"

namespace flashbench::kernels::sm90 {
namespace {

template <int kHeadDim, int kRowTiles, int kKeys, int kWarps, int kStages>
constexpr Variant<DecodeArguments> variant() {
  constexpr DecodeConfig kConfig{kHeadDim, kRowTiles, kKeys,
                                 kWarps,   kStages,   decode_at_once(kHeadDim, kWarps)};
  using Half = Decode<__half, kConfig>;
  return variant_of<Half>(decode_kernel<Half>, decode_kernel<Decode<__nv_bfloat16, kConfig>>);
}

// One thread block of 8 warps to a multiprocessor is faster where there are few; two of 4 warps
// hide each other's ends where there are many. Of those that are predicted to take as long, the
// first is chosen.
constexpr std::array kVariants{
    variant<64, 1, 32, 8, 2>(),  variant<64, 1, 32, 4, 2>(),  variant<64, 2, 32, 8, 2>(),
    variant<64, 2, 32, 4, 2>(),  variant<96, 1, 16, 8, 3>(),  variant<96, 1, 16, 4, 3>(),
    variant<96, 2, 16, 8, 3>(),  variant<96, 2, 16, 4, 3>(),  variant<128, 1, 16, 8, 2>(),
    variant<128, 1, 16, 4, 2>(), variant<128, 2, 16, 8, 2>(), variant<128, 2, 16, 4, 2>(),
    variant<192, 1, 16, 8, 2>(), variant<256, 1, 16, 4, 2>(),
};

// The fewest rows of a block that hold a unit, or the most that there are.
int block_rows(const Problem& p) {
  int most = 0;
  for (const auto& variant : kVariants) {
    if (variant.head_dim != compiled_head_dim(kVariants, p.head_dim)) continue;
    most = std::max(most, variant.blocks.q);
    if (variant.blocks.q >= packed_rows(p)) return variant.blocks.q;
  }
  return most;
}

std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
  if (auto why = why_not_half(p.dtype)) return why;
  if (device.compute_capability != 90) {
    return "needs a GPU of compute capability 9.0, for its clusters of thread blocks";
  }
  if (std::max(p.q_len, p.kv_len) >= kMaxLength) return "lengths must be below 2^30";
  constexpr int64_t kMaxQueries = 16, kMaxRows = 64;
  if (p.q_len > kMaxQueries) return "is for decoding: at most 16 queries a request";
  if (packed_rows(p) > kMaxRows) {
    return "packs the queries of a group of heads, at most 64 in all";
  }
  // Each block of packed rows reads K and V once; sm90_forward, with up to 64 queries of one head a
  // tile, reads them once for every head of the group.
  const int64_t blocks = (packed_rows(p) + block_rows(p) - 1) / block_rows(p);
  if (blocks > p.heads_per_kv_head()) {
    return "would read K and V more often than sm90_forward";
  }
  // The grid's dimensions, and rows whose distance in bytes has 32 bits.
  if (p.batch >= 65536) return "takes fewer than 65,536 requests";
  if (p.kv_heads * std::max<int64_t>(blocks, p.head_dim) >= (int64_t{1} << 30)) {
    return "too many heads";
  }
  return std::nullopt;
}

BlockSizes choose(const Problem& p, const DeviceInfo& device) {
  BlockSizes best;
  double least = std::numeric_limits<double>::infinity();
  for (const BlockSizes& blocks : fitting_blocks(kVariants, p, device)) {
    if (blocks.q != block_rows(p)) continue;
    const double ns = predicted_ns(p, device, blocks, choose_splits(p, device, blocks));
    if (ns >= least) continue;
    least = ns;
    best = blocks;
  }
  return best;
}

CudaKernel<DecodeArguments> kernel_at(const Launch& at) {
  return variant_at(kVariants, at).kernel("sm90_decode", at.problem.dtype);
}

std::vector<KernelFacts> facts(const Launch& at) {
  return {kernel_facts(kernel_at(at))};
}

Splits splits_of(const Launch& at) {
  return choose_splits(at.problem, at.device, at.blocks);
}

std::string describe_variant(const Launch& at) {
  const Splits splits = splits_of(at);
  return "sm90_decode " + describe(at.blocks) + ", splits " + std::to_string(splits.clusters) +
         "x" + std::to_string(splits.cluster_size);
}

// The parts of the workspace, in bytes from its start; empty if no unit has several clusters.
struct Workspace {
  size_t sums = 0, last_arrived = 0, end = 0;

  explicit Workspace(const Launch& at) {
    const Problem& p = at.problem;
    const Splits splits = splits_of(at);
    if (splits.clusters == 1) return;
    const auto units = static_cast<size_t>(p.batch * p.kv_heads * row_blocks(p, at.blocks));
    const size_t rows = units * static_cast<size_t>(splits.clusters * at.blocks.q);
    const auto cluster_size = static_cast<size_t>(splits.cluster_size);
    sums = rows * static_cast<size_t>(p.head_dim) * sizeof(float);
    last_arrived = sums + rows * cluster_size * 2 * sizeof(float);
    end = last_arrived + units * cluster_size * sizeof(unsigned);
  }
};

// DecodeArguments::last_arrived starts at UINT_MAX, as poisoned memory is.
static_assert(kPoisonByte == 0xff);
size_t workspace_bytes(const Launch& at) {
  return Workspace(at).end;
}

// Every block of rows reads the keys that its queries see. Partial results are written and read.
int64_t requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  const Splits splits = splits_of(at);
  const int64_t row_bytes = p.head_dim * element_size(p.dtype);
  int64_t keys = 0;
  for (int64_t block = 1; block <= row_blocks(p, at.blocks); ++block) {
    const int64_t rows = std::min(block * at.blocks.q, packed_rows(p));
    keys += p.visible_keys((rows - 1) / p.heads_per_kv_head()).end;
  }
  int64_t bytes = p.query_rows() * (row_bytes * (splits.count() + 1) + int64_t{sizeof(float)}) +
                  2 * p.batch * p.kv_heads * keys * row_bytes;
  if (splits.clusters > 1) {
    const int64_t partial_floats = p.head_dim + 2 * splits.cluster_size;
    bytes += 2 * p.query_rows() * splits.clusters * partial_floats * int64_t{sizeof(float)};
  }
  return bytes;
}

void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  const Problem& p = at.problem;
  const Splits splits = splits_of(at);
  const Workspace offsets(at);
  const auto part = [&](size_t offset) { return static_cast<char*>(workspace) + offset; };
  const int64_t blocks = row_blocks(p, at.blocks);
  const DecodeArguments arguments{
      .q = in.q.data,
      .k = in.k.data,
      .v = in.v.data,
      .o = out.o.data,
      .logsumexp = out.logsumexp,
      .q_strides = strides_of(in.q),
      .k_strides = strides_of(in.k),
      .v_strides = strides_of(in.v),
      .o_strides = strides_of(out.o),
      .kv_heads = static_cast<int>(p.kv_heads),
      .group = static_cast<int>(p.heads_per_kv_head()),
      .q_len = static_cast<int>(p.q_len),
      .kv_len = static_cast<int>(p.kv_len),
      .head_dim = static_cast<int>(p.head_dim),
      .diagonal = static_cast<int>(diagonal(p)),
      .inverse_group = 1 / static_cast<float>(p.heads_per_kv_head()),
      .row_blocks = static_cast<int>(blocks),
      .clusters = splits.clusters,
      .cluster_size = splits.cluster_size,
      .scale_log2 = static_cast<float>(p.softmax_scale() * std::numbers::log2e),
      .partial_o = reinterpret_cast<float*>(workspace),
      .partial_sums = reinterpret_cast<float*>(part(offsets.sums)),
      .last_arrived = reinterpret_cast<unsigned*>(part(offsets.last_arrived)),
  };
  const ClusterGrid grid{.x = p.kv_heads * blocks,
                         .y = p.batch,
                         .z = splits.count(),
                         .cluster_size = splits.cluster_size};
  launch_clusters(kernel_at(at), grid, arguments, stream);
}

}  // namespace
}  // namespace flashbench::kernels::sm90

namespace flashbench::kernels {

extern const AttentionKernel kSm90Decode{.name = "sm90_decode",
                                         .family = "sm90_decode",
                                         .device = DeviceKind::cuda,
                                         .pass = Pass::forward,
                                         .needs_aligned_rows = true,
                                         .why_unsupported = sm90::why_unsupported,
                                         .choose = sm90::choose,
                                         .variant = sm90::describe_variant,
                                         .workspace_bytes = sm90::workspace_bytes,
                                         .requested_bytes = sm90::requested_bytes,
                                         .facts = sm90::facts,
                                         .launch = sm90::launch};

}  // namespace flashbench::kernels
