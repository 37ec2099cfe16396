// Host code of the forward kernel for Hopper: requirements, compiled variants, launch.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>

#include "attention/pages.h"
#include "device/cuda_call.h"
#include "kernels/attention.h"
#include "kernels/common/blocks.h"
#include "kernels/common/fused_forward.h"
#include "kernels/common/half_types.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/common/requests.h"
#include "kernels/sm90/forward_blocks.h"
#include "kernels/sm90/forward_launch.h"
#include "kernels/sm90/forward_pieces.h"
#include "kernels/sm90/forward_variants.h"
#include "kernels/sm90/tensor_map.h"

namespace flashbench::kernels::sm90 {
namespace {

constexpr Config as_it_is(Config config) {
  return config;
}

// For short problems.
constexpr std::array kSmallTiles{
    configuration(64, 64, 64, 2),  configuration(64, 64, 80, 2),  configuration(80, 64, 64, 2),
    configuration(80, 64, 80, 2),  configuration(96, 64, 64, 2),  configuration(96, 64, 80, 2),
    configuration(128, 64, 64, 2), configuration(128, 64, 80, 2),
};

// The candidates of `flashbench tune`.
constexpr std::array kVariants = [] {
  constexpr auto large = forward_variants_of<kLargeTiles, as_it_is>();
  constexpr auto small = forward_variants_of<kSmallTiles, as_it_is>();
  std::array<Variant<Arguments>, large.size() + small.size()> all{};
  std::ranges::copy(small, std::ranges::copy(large, all.begin()).out);
  return all;
}();

}  // namespace

std::span<const Variant<Arguments>> forward_variants(const Problem& p) {
  return is_by_request(p) ? forward_variants_by_request() : kVariants;
}

namespace {

SplitTiles split_tiles_of(const Launch& at) {
  if (at.share != nullptr || at.fp32_outputs.of_queries) return {};
  const int head_dim = compiled_head_dim(forward_variants(at.problem), at.problem.head_dim);
  return split_last_wave(at.problem, at.device, head_dim, at.blocks);
}

std::span<const Variant<Arguments>> variants(const Launch& at) {
  if (at.share != nullptr) return forward_variants_share();
  if (at.fp32_outputs.of_queries) return forward_variants_fp32_o();
  return split_tiles_of(at).last.items > 0 ? forward_variants_in_pieces()
                                           : forward_variants(at.problem);
}

// With O in fp32, and for a share, there is one variant for a head_dim, whatever was chosen.
Launch with_blocks_there_are(Launch at) {
  if (!at.fp32_outputs.of_queries && at.share == nullptr) return at;
  const auto all = variants(at);
  at.blocks = std::ranges::find(all, compiled_head_dim(all, at.problem.head_dim),
                                &Variant<Arguments>::head_dim)
                  ->blocks;
  return at;
}

// A box of TMA has rows of one page, and begins with a multiple of 8 rows in shared memory.
constexpr int64_t kPageStep = 16;

std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
  if (auto why = why_not_half(p.dtype)) return why;
  if (device.compute_capability != 90) {
    return "needs a GPU of compute capability 9.0: wgmma is Hopper's alone";
  }
  if (std::max(p.q_len, p.kv_len) >= kMaxLength) return "lengths must be below 2^30";
  if (p.is_paged() && *p.page_size % kPageStep != 0) {
    return "takes pages whose rows are a multiple of 16";
  }
  if (p.is_paged() && p.has_window()) return "takes pages without a sliding window only";
  constexpr int64_t kMaxTiles = int64_t{1} << 30;  // leaves room for one more per thread block
  if (tiles(p, q_blocks(p, kConsumerRows)) > kMaxTiles) return "too many heads and rows";
  return std::nullopt;
}

std::vector<BlockSizes> candidates(const Problem& p, const DeviceInfo& device) {
  return fitting_blocks(forward_variants(p), p, device);
}

BlockSizes choose(const Problem& p, const DeviceInfo& device) {
  const std::vector<BlockSizes> fitting = candidates(p, device);
  return shortest_blocks(p, device, compiled_head_dim(forward_variants(p), p.head_dim), fitting,
                         choose_blocks("sm90", p, device, fitting));
}

CudaKernel<Arguments> kernel_at(const Launch& at) {
  return variant_at(variants(at), at).kernel("sm90_forward", at.problem.dtype);
}

std::vector<KernelFacts> facts(const Launch& at) {
  return {kernel_facts(kernel_at(at))};
}

std::string describe_variant(const Launch& at) {
  return "sm90_forward " + describe(with_blocks_there_are(at).blocks) +
         split_tiles_of(at).describe();
}

// The workspace begins with Arguments::last_taken, which poisoned memory initialises to UINT_MAX.
// What pieces of tiles take follows.
static_assert(kPoisonByte == 0xff);
constexpr size_t kPiecesAt = 256;
size_t workspace_bytes(const Launch& at) {
  return kPiecesAt + split_tiles_of(at).workspace_bytes();
}

// Rows of `from` for those of `to`; strides in words of 16 bytes.
Fetch::Tensor fetched_tensor(const ConstTensorView& from, const ConstTensorView& to) {
  const int64_t word = 16 / element_size(from.dtype);
  return {.from = static_cast<const uint4*>(from.data),
          .to = static_cast<uint4*>(const_cast<void*>(to.data)),
          .from_batch = from.batch_stride / word,
          .from_head = from.head_stride / word,
          .to_batch = to.batch_stride / word,
          .to_head = to.head_stride / word,
          .from_row = static_cast<int>(from.row_stride / word),
          .to_row = static_cast<int>(to.row_stride / word)};
}

// The parts have the heads of a section, so that thread blocks come to what arrives together, and
// as few rows as the number of parts allows, but whole blocks of keys.
Fetch fetch_of(const Share& share, const Inputs& in, int section_heads, int heads_per_kv_head) {
  constexpr int kBlocksOfKeys = 128;
  const auto divide_up = [](int a, int b) { return (a + b - 1) / b; };
  Fetch f{.tensors = {fetched_tensor(share.all_k, in.k), fetched_tensor(share.all_v, in.v)},
          .has_q = share.all_q.data != nullptr,
          .rows = static_cast<int>(in.k.length),
          .heads = static_cast<int>(in.k.batch * in.k.heads),
          .row_words = static_cast<int>(in.k.head_dim * element_size(in.k.dtype) / 16)};
  if (f.has_q) f.tensors[2] = fetched_tensor(share.all_q, in.q);

  f.part_heads = section_heads / heads_per_kv_head;
  f.part_heads *= divide_up(divide_up(f.heads, f.part_heads), Fetch::kMostParts);
  const int head_parts = divide_up(f.heads, f.part_heads);
  const int blocks = divide_up(f.rows, kBlocksOfKeys);
  const int part_rows = divide_up(blocks, Fetch::kMostParts / head_parts) * kBlocksOfKeys;
  const int row_parts = divide_up(f.rows, part_rows);

  const int tensor_heads = f.has_q ? 2 + heads_per_kv_head : 2;
  const int across = f.part_heads * tensor_heads;
  const int part_slices = across * (part_rows / Fetch::kSliceRows);
  f.slices = share.fetches ? part_slices * head_parts * row_parts : 0;
  f.kv_heads = Divisor(in.k.heads);
  f.tensor_heads = Divisor(tensor_heads);
  f.across_slices = Divisor(across);
  f.part_slices = Divisor(part_slices);
  f.row_parts = Divisor(row_parts);
  f.part_rows = Divisor(part_rows);

  static_assert(kShareProgressBytes >= (1 + Fetch::kMostParts) * sizeof(int));
  f.taken = static_cast<int*>(share.progress);
  f.there = f.taken + 1;
  return f;
}

void set_share(Arguments& a, const Share& share, const Inputs& in, BlockSizes blocks) {
  a.kv_len = static_cast<int>(in.k.length);
  a.q_blocks = 0;
  for (size_t i = 0; i < share.queries.size(); ++i) {
    const RowRange& own = share.queries[i];
    const auto count = static_cast<int>(q_blocks_of(own, blocks.q));
    a.own[i] = {static_cast<int>(own.first), static_cast<int>(own.end), count};
    a.q_blocks += count;
  }
  a.own_rows_of_warps = std::ranges::all_of(share.queries, [](const RowRange& own) {
    return own.first % kWarpRows == 0 && own.end % kWarpRows == 0;
  });
  for (size_t i = 0; i < share.own_rows.size(); ++i) {
    a.in_place[i] = {static_cast<int>(share.own_rows[i].first),
                     static_cast<int>(share.own_rows[i].end)};
  }
  a.all_q = tensor_map(share.all_q.data == nullptr ? in.q : share.all_q, kConsumerRows);
  a.all_k = tensor_map(share.all_k, blocks.kv);
  a.all_v = tensor_map(share.all_v, blocks.kv);
  a.fetch = fetch_of(share, in, a.section_heads, a.heads_per_kv_head);
}

// `at_once`: how many thread blocks a GPU runs.
Arguments arguments(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                    int64_t at_once) {
  const Problem& p = at.problem;
  Arguments a = common_arguments(at, out, workspace);
  a.q = tensor_map(in.q, kConsumerRows);
  a.k = tensor_map(in.k, at.blocks.kv);
  a.v = tensor_map(in.v, at.blocks.kv);
  if (!at.fp32_outputs.of_queries) a.staged_o = tensor_map(out.o, kWarpRows);
  a.diagonal = static_cast<int>(diagonal(p));
  a.batch_heads = static_cast<int>(p.batch * p.q_heads);
  a.section_heads = static_cast<int>(section_heads(p, at.blocks, at.device));
  if (at.share == nullptr) {
    a.missing_rows = static_cast<int>(missing_rows(p, at.blocks, p.q_len));
  } else {
    set_share(a, *at.share, in, at.blocks);
  }
  a.pieces =
      split_tiles_of(at).arguments(tiles(p, a.q_blocks), static_cast<char*>(workspace) + kPiecesAt);
  if (at.share == nullptr || at.share->queries.front().empty()) {
    a.order = tile_order(p, tiles(p, a.q_blocks), a.section_heads, at_once);
  }
  return a;
}

void launch(const Launch& given, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  const Launch at = with_blocks_there_are(given);
  const Problem& p = at.problem;
  const int64_t at_once =
      thread_blocks_of_device(at.device, compiled_head_dim(variants(at), p.head_dim), at.blocks.q);
  const Arguments a = is_by_request(p) ? arguments_by_request(at, in, out, workspace)
                                       : arguments(at, in, out, workspace, at_once);
  if (at.share != nullptr) {
    FLASHBENCH_CUDA(cudaMemsetAsync(at.share->progress, 0, kShareProgressBytes,
                                    static_cast<cudaStream_t>(stream.cuda)));
  }
  const int64_t items = split_tiles_of(at).items(tiles(p, a.q_blocks));
  launch_kernel(kernel_at(at), std::min(items, at_once), a, stream);
}

}  // namespace
}  // namespace flashbench::kernels::sm90

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward{.name = "sm90_forward",
                                          .family = "sm90",
                                          .device = DeviceKind::cuda,
                                          .pass = Pass::forward,
                                          .needs_aligned_rows = true,
                                          .knows_windows = true,
                                          .knows_lengths = true,
                                          .knows_pages = true,
                                          .knows_shares = true,
                                          .share_rows = 128,  // a multiple of all blocks of keys
                                          .knows_fp32_outputs = true,
                                          .why_unsupported = sm90::why_unsupported,
                                          .candidates = sm90::candidates,
                                          .choose = sm90::choose,
                                          .variant = sm90::describe_variant,
                                          .workspace_bytes = sm90::workspace_bytes,
                                          .requested_bytes = sm90::requested_bytes_of_tiles,
                                          .facts = sm90::facts,
                                          .launch = sm90::launch};

}  // namespace flashbench::kernels
