// The forward kernel for Hopper that divides the keys of a tile among several thread blocks, for
// problems of few queries and many keys: a chunk of a prompt behind a long context. Its blocks of
// queries alone would leave multiprocessors idle. A second launch merges the parts.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/common/blocks.h"
#include "kernels/common/fused_forward.h"
#include "kernels/common/half_types.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/common/requests.h"
#include "kernels/sm90/cluster_launch.h"
#include "kernels/sm90/forward_blocks.h"
#include "kernels/sm90/forward_launch.h"
#include "kernels/sm90/forward_parts.h"
#include "kernels/sm90/forward_variants.h"
#include "kernels/sm90/merge_parts.cuh"
#include "kernels/sm90/tensor_map.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward;

namespace sm90 {
namespace {

// The variants for requests of equal lengths without pages, and for any (Config::looks_up).
template <bool kLooksUp>
constexpr Config without_overlap(int head_dim, int block_q, int block_kv, int stages) {
  const Config config = with_parts(configuration(head_dim, block_q, block_kv, stages, true));
  return kLooksUp ? config : without_look_up(config);
}
template <bool kLooksUp>
constexpr Config in_parts(int head_dim, int block_q, int block_kv, int stages) {
  return with_overlap(without_overlap<kLooksUp>(head_dim, block_q, block_kv, stages));
}

template <bool kLooksUp>
constexpr std::array kVariants{
    forward_variant<without_overlap<kLooksUp>(64, 192, 96, 5)>(),  // no registers for a second P
    forward_variant<in_parts<kLooksUp>(64, 128, 128, 3)>(),
    forward_variant<in_parts<kLooksUp>(64, 64, 64, 4)>(),
    forward_variant<in_parts<kLooksUp>(96, 192, 64, 4)>(),
    forward_variant<in_parts<kLooksUp>(96, 128, 128, 3)>(),
    forward_variant<in_parts<kLooksUp>(96, 64, 64, 3)>(),
    forward_variant<in_parts<kLooksUp>(128, 192, 64, 4)>(),
    forward_variant<in_parts<kLooksUp>(128, 128, 96, 3)>(),
    forward_variant<in_parts<kLooksUp>(128, 64, 64, 2)>(),
    forward_variant<in_parts<kLooksUp>(192, 128, 64, 3)>(),
    forward_variant<in_parts<kLooksUp>(256, 128, 64, 2)>(),
};

template <bool kLooksUp>
constexpr std::array kPairVariants{
    forward_variant<with_pairs(in_parts<kLooksUp>(64, 128, 128, 3))>(),
    forward_variant<with_pairs(in_parts<kLooksUp>(64, 64, 64, 4))>(),
    forward_variant<with_pairs(in_parts<kLooksUp>(96, 192, 64, 4))>(),
    forward_variant<with_pairs(in_parts<kLooksUp>(96, 128, 128, 3))>(),
    forward_variant<with_pairs(in_parts<kLooksUp>(96, 64, 64, 3))>(),
    forward_variant<with_pairs(in_parts<kLooksUp>(128, 192, 64, 4))>(),
    forward_variant<with_pairs(in_parts<kLooksUp>(128, 128, 96, 3))>(),
    forward_variant<with_pairs(in_parts<kLooksUp>(128, 64, 64, 2))>(),
    forward_variant<with_pairs(in_parts<kLooksUp>(256, 128, 64, 2))>(),
};

using Variants = std::span<const Variant<Arguments>>;
Variants variants(const Problem& p) {
  return is_by_request(p) ? Variants(kVariants<true>) : Variants(kVariants<false>);
}
Variants pair_variants(const Problem& p) {
  return is_by_request(p) ? Variants(kPairVariants<true>) : Variants(kPairVariants<false>);
}

// With one of `candidates`.
KeyParts parts_of(const Problem& p, const DeviceInfo& device,
                  std::span<const BlockSizes> candidates) {
  // With so many tiles, no part would pay.
  constexpr int64_t kMostTilesEach = 4;
  const BlockSizes whole = kSm90Forward.choose(p, device);
  const int64_t all = tiles(p, q_blocks(p, whole.q));
  if (all > kMostTilesEach * device.threads || p.q_tokens() == 0) return {whole};
  return shortest_parts(p, device, compiled_head_dim(variants(p), p.head_dim), candidates,
                        fitting_blocks(pair_variants(p), p, device),
                        compiled_head_dim(forward_variants(p), p.head_dim), whole);
}
KeyParts parts_of(const Problem& p, const DeviceInfo& device) {
  return parts_of(p, device, fitting_blocks(variants(p), p, device));
}

std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
  if (auto why = kSm90Forward.why_unsupported(p, device)) return why;
  if (parts_of(p, device).parts == 1) {
    return "is for blocks of queries that are too few for the GPU, and many keys";
  }
  return std::nullopt;
}

BlockSizes choose(const Problem& p, const DeviceInfo& device) {
  return parts_of(p, device).blocks;
}

// The parts of the keys, the blocks of rows of all requests, and the heads, or groups of packed
// heads, that each has.
struct Tiling {
  int64_t parts, packed_heads, blocks, heads;
  bool in_pairs;

  explicit Tiling(const Launch& at)
      : Tiling(at, parts_of(at.problem, at.device, std::span(&at.blocks, 1))) {}
  Tiling(const Launch& at, const KeyParts& division)
      : parts(division.parts),
        packed_heads(division.packs_heads ? at.problem.heads_per_kv_head() : 1),
        blocks(q_block_slots(at.problem, at.blocks.q)),
        heads(at.problem.q_heads / packed_heads),
        in_pairs(division.in_pairs) {
    const Problem& p = at.problem;
    if (packed_heads == 1) return;
    blocks = p.batch * q_blocks_of({0, packed_heads * rows_of_packed_head(p.q_len)}, at.blocks.q);
  }
  int64_t tiles() const { return blocks * heads * parts; }
  // Of a tile, for another launch to merge.
  int64_t stored_parts() const { return in_pairs ? 0 : parts; }
};

CudaKernel<Arguments> kernel_at(const Launch& at, const Tiling& tiling) {
  const Problem& p = at.problem;
  return variant_at(tiling.in_pairs ? pair_variants(p) : variants(p), at)
      .kernel("sm90_forward_parts", p.dtype);
}

std::vector<KernelFacts> facts(const Launch& at) {
  const Tiling tiling(at);
  const KernelFacts main = kernel_facts(kernel_at(at, tiling));
  if (tiling.in_pairs) return {main};
  const MergeThreads threads(at.problem.head_dim, tiling.parts);
  return {main, kernel_facts(merge_kernel(at.problem.dtype, threads))};
}

std::string describe_variant(const Launch& at) {
  const Tiling tiling(at);
  return "sm90_forward_parts " + describe(at.blocks) + ", keys in " + std::to_string(tiling.parts) +
         " parts" + (tiling.in_pairs ? ", merged in pairs" : "") +
         (tiling.packed_heads > 1 ? ", packed heads" : "");
}

// The parts of the workspace, in bytes from its start.
struct Workspace {
  size_t logsumexp, last_taken, end;

  Workspace(const Launch& at, const Tiling& tiling) {
    const auto rows = static_cast<size_t>(tiling.stored_parts() * at.problem.query_rows());
    logsumexp = rows * static_cast<size_t>(at.problem.head_dim) * sizeof(float);
    last_taken = logsumexp + rows * sizeof(float);
    end = last_taken + sizeof(unsigned);
  }
};

// Arguments::last_taken starts at UINT_MAX, as poisoned memory is.
static_assert(kPoisonByte == 0xff);
size_t workspace_bytes(const Launch& at) {
  return Workspace(at, Tiling(at)).end;
}

std::optional<Schedule> schedule(const Launch& at) {
  const Tiling tiling(at);
  return Schedule{.splits = tiling.parts,
                  .workers = tiling.tiles(),
                  .partial_bytes = static_cast<int64_t>(Workspace(at, tiling).last_taken),
                  .imbalance = 1};
}

// Every part of a tile reads its queries.
int64_t requested_bytes(const Launch& at) {
  const int64_t q_bytes = element_size(at.problem.dtype) * at.problem.head_dim *
                          at.problem.q_heads * at.problem.q_tokens();
  return fused_forward_requested_bytes(at) + (Tiling(at).parts - 1) * q_bytes +
         2 * schedule(at)->partial_bytes;
}

// Makes the arguments those of a launch with the keys in parts.
void set_parts(Arguments& a, const Problem& p, const Tiling& tiling, const Inputs& in) {
  const int64_t head_rows = tiling.packed_heads > 1 ? rows_of_packed_head(p.q_len) : kMaxLength;
  a.q_box_rows = static_cast<int>(std::gcd(head_rows, kConsumerRows));
  a.q = request_map(in.q, a.q_box_rows).map;
  a.q_blocks = static_cast<int>(tiling.blocks);
  a.parts = Divisor(tiling.parts);
  a.part_rows = p.query_rows();
  a.packed_heads = static_cast<int>(tiling.packed_heads);
  a.head_groups = Divisor(tiling.heads);
  a.head_rows = Divisor(head_rows);
  a.request_blocks = static_cast<int>(tiling.blocks / p.batch);
}

void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  const Problem& p = at.problem;
  const Tiling tiling(at);
  const Workspace offsets(at, tiling);
  const auto in_workspace = [&](size_t offset) { return static_cast<char*>(workspace) + offset; };
  Arguments a = arguments_by_request(at, in, out, in_workspace(offsets.last_taken));
  set_parts(a, p, tiling, in);
  if (tiling.in_pairs) {
    launch_clusters(kernel_at(at, tiling), {.z = tiling.tiles(), .cluster_size = 2}, a, stream);
    return;
  }
  a.o = workspace;
  a.logsumexp = reinterpret_cast<float*>(in_workspace(offsets.logsumexp));
  a.o_row_stride = p.head_dim;
  const int64_t at_once =
      thread_blocks_of_device(at.device, compiled_head_dim(variants(p), p.head_dim), at.blocks.q);
  launch_kernel(kernel_at(at, tiling), std::min(tiling.tiles(), at_once), a, stream);

  const MergeThreads threads(p.head_dim, tiling.parts);
  const MergeArguments merge{
      .o_parts = static_cast<const float*>(a.o),
      .logsumexp_parts = a.logsumexp,
      .parts = a.parts.divisor(),
      .head_dim = a.head_dim,
      .rows = static_cast<int>(a.part_rows),
      .log_lanes = threads.log_lanes,
      .o = out.o.data,
      .logsumexp = out.logsumexp,
      .o_batch_stride = p.is_ragged() ? 0 : out.o.batch_stride,
      .o_head_stride = out.o.head_stride,
      .o_row_stride = out.o.row_stride,
      .heads = Divisor(p.q_heads),
      .length = Divisor(p.is_ragged() ? p.q_tokens() : p.q_len),
      .packed = p.is_ragged(),
      .cu_seqlens_q = at.cu_seqlens_q,
      .requests = static_cast<int>(p.batch),
  };
  launch_kernel(merge_kernel(p.dtype, threads), threads.thread_blocks(merge.rows), merge, stream,
                Start::early);
}

}  // namespace

bool parts_pack_group(const Problem& p, const DeviceInfo& device) {
  if (kSm90Forward.why_unsupported(p, device)) return false;
  const KeyParts chosen = parts_of(p, device);
  const int64_t rows = p.heads_per_kv_head() * rows_of_packed_head(p.q_len);
  return chosen.packs_heads && chosen.blocks.q == 64 && rows <= chosen.blocks.q;
}

}  // namespace sm90

extern const AttentionKernel kSm90ForwardParts{.name = "sm90_forward_parts",
                                               .family = "sm90",
                                               .device = DeviceKind::cuda,
                                               .pass = Pass::forward,
                                               .needs_aligned_rows = true,
                                               .knows_lengths = true,
                                               .knows_pages = true,
                                               .why_unsupported = sm90::why_unsupported,
                                               .choose = sm90::choose,
                                               .variant = sm90::describe_variant,
                                               .workspace_bytes = sm90::workspace_bytes,
                                               .requested_bytes = sm90::requested_bytes,
                                               .schedule = sm90::schedule,
                                               .facts = sm90::facts,
                                               .launch = sm90::launch};

}  // namespace flashbench::kernels
