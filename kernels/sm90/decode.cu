// Host code of the decoding kernel for Hopper: requirements, compiled variants, launch.
#include <algorithm>
#include <array>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/cu_seqlens.h"
#include "kernels/attention.h"
#include "kernels/common/blocks.h"
#include "kernels/common/half_types.h"
#include "kernels/common/mask.h"
#include "kernels/sm90/cluster_launch.h"
#include "kernels/sm90/decode_splits.h"
#include "kernels/sm90/decode_variants.h"
#include "kernels/sm90/forward_parts.h"

namespace flashbench::kernels::sm90 {
namespace {

constexpr int64_t kMaxQueries = 16;  // of a request

// Where requests have lengths of their own.
constexpr std::array kPortionVariants{
    decode_variant<DecodeBatch::portions, 64, 64, 1, 32, 8, 2>(),
    decode_variant<DecodeBatch::portions, 64, 64, 1, 32, 4, 2>(),
    decode_variant<DecodeBatch::portions, 64, 64, 2, 32, 8, 2>(),
    decode_variant<DecodeBatch::portions, 96, 96, 1, 16, 8, 3>(),
    decode_variant<DecodeBatch::portions, 96, 96, 1, 16, 4, 3>(),
    decode_variant<DecodeBatch::portions, 96, 96, 2, 16, 8, 3>(),
    decode_variant<DecodeBatch::portions, 128, 128, 1, 16, 8, 2>(),
    decode_variant<DecodeBatch::portions, 128, 128, 1, 16, 4, 2>(),
    decode_variant<DecodeBatch::portions, 128, 128, 2, 16, 8, 2>(),
    decode_variant<DecodeBatch::portions, 192, 128, 1, 16, 8, 2>(),
    decode_variant<DecodeBatch::portions, 192, 192, 1, 16, 8, 2>(),
    decode_variant<DecodeBatch::portions, 256, 256, 1, 16, 4, 2>(),
};

// Of a cache of bytes: as many bytes in flight as above, by tiles of twice the keys or more stages.
template <DecodeBatch kBatch>
constexpr std::array kByteVariants{
    decode_variant<kBatch, 64, 64, 1, 32, 8, 4, true>(),
    decode_variant<kBatch, 64, 64, 1, 32, 4, 4, true>(),
    decode_variant<kBatch, 64, 64, 2, 32, 8, 4, true>(),
    decode_variant<kBatch, 128, 128, 1, 32, 8, 2, true>(),
    decode_variant<kBatch, 128, 128, 1, 32, 4, 2, true>(),
    decode_variant<kBatch, 128, 128, 2, 16, 8, 4, true>(),
    decode_variant<kBatch, 192, 128, 1, 32, 8, 2, true>(),
    decode_variant<kBatch, 192, 192, 1, 32, 8, 2, true>(),
    decode_variant<kBatch, 256, 256, 1, 16, 4, 4, true>(),
};

// The kernels differ in which batches they take, and in whether results may depend on the batch.
enum class Bits { of_batch, of_request };

template <DecodeBatch kBatch>
std::span<const DecodeVariant> variants_of(const Problem& p) {
  if (p.kv_dtype) return kByteVariants<kBatch>;
  if constexpr (kBatch == DecodeBatch::portions) {
    return kPortionVariants;
  } else {
    return kDecodeVariants<kBatch>;
  }
}
std::span<const DecodeVariant> variants_for(const Problem& p, Bits bits) {
  if (p.lengths || bits == Bits::of_request) return variants_of<DecodeBatch::portions>(p);
  if (p.is_paged()) return variants_of<DecodeBatch::paged>(p);
  return variants_of<DecodeBatch::equal>(p);
}
// With O in fp32, those of the same blocks.
std::span<const DecodeVariant> variants_for(const Launch& at, Bits bits) {
  return at.fp32_outputs.of_queries ? decode_variants_fp32_o() : variants_for(at.problem, bits);
}

// Those for the smallest dimensions that are compiled.
bool fits(const DecodeVariant& variant, const Problem& p) {
  const int64_t widest = std::max(p.head_dim, p.value_dim());
  if (p.head_dim > 128 && p.head_dim <= 192 && p.value_dim() <= 128) {
    return variant.head_dim == 192 && variant.value_dim == 128;
  }
  return variant.head_dim == variant.value_dim &&
         variant.head_dim == compiled_head_dim(variants_of<DecodeBatch::equal>(p), widest);
}

std::vector<BlockSizes> blocks_for(const Problem& p, Bits bits) {
  std::vector<BlockSizes> blocks;
  for (const auto& variant : variants_for(p, bits)) {
    if (fits(variant, p)) blocks.push_back(variant.blocks);
  }
  return blocks;
}

// The fewest rows of a block that hold a unit, or the most that there are. Where no other request
// may change a result, there is one number of rows for all.
int block_rows(const Problem& p, Bits bits) {
  int most = 0;
  for (const BlockSizes& blocks : blocks_for(p, bits)) {
    most = std::max(most, blocks.q);
    if (blocks.q >= packed_rows(p) || bits == Bits::of_request) return blocks.q;
  }
  return most;
}

template <Bits kBits>
std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
  if (auto why = why_not_half(p.dtype)) return why;
  if (device.compute_capability != 90) {
    return "needs a GPU of compute capability 9.0, for its clusters of thread blocks";
  }
  if (p.kv_dtype && (p.head_dim % 16 != 0 || p.value_dim() % 16 != 0)) {
    return "rows of e4m3 must be multiples of 16 bytes";
  }
  if (std::max(p.q_len, p.kv_len) >= kMaxLength) return "lengths must be below 2^30";
  constexpr int64_t kMaxRows = 64;
  if (p.q_len > kMaxQueries) return "is for decoding: at most 16 queries a request";
  if (packed_rows(p) > kMaxRows) {
    return "packs the queries of a group of heads, at most 64 in all";
  }
  // Each block of packed rows reads K and V once; sm90_forward, with up to 64 queries of one head a
  // tile, reads them once for every head of the group.
  const int64_t blocks = (packed_rows(p) + block_rows(p, kBits) - 1) / block_rows(p, kBits);
  if (kBits == Bits::of_batch && !p.lengths && !p.is_paged() && !p.has_window() && !p.head_dim_v &&
      blocks > p.heads_per_kv_head()) {
    return "would read K and V more often than sm90_forward";
  }
  constexpr int64_t kLeastKeysOfParts = 4096;  // with fewer, parts are mostly slower
  if (kBits == Bits::of_batch && blocks > 1 && p.kv_len >= kLeastKeysOfParts && !p.is_paged() &&
      !p.has_window() && !p.head_dim_v && !p.kv_dtype && parts_pack_group(p, device)) {
    return "would read K and V more often than sm90_forward_parts, which packs more rows";
  }
  if (auto why = CuSeqlens::why_none(p)) return why;
  // The grid's dimensions, rows whose distance in bytes has 32 bits, and numbers of tiles.
  if (p.batch >= 65536) return "takes fewer than 65,536 requests";
  if (p.kv_heads >= 65536) return "takes fewer than 65,536 K/V heads";
  if (p.kv_heads * std::max<int64_t>(blocks, std::max(p.head_dim, p.value_dim())) >= kMaxLength) {
    return "too many heads";
  }
  constexpr int64_t kFewestKeysOfATile = 64, kMostTilesAround = 16;
  if (p.batch * (p.kv_len / kFewestKeysOfATile + kMostTilesAround) >= kMaxLength) {
    return "too many keys in all";
  }
  return std::nullopt;
}

std::vector<BlockSizes> blocks_with_rows(const Problem& p, Bits bits) {
  std::vector<BlockSizes> blocks = blocks_for(p, bits);
  std::erase_if(blocks, [&](const BlockSizes& one) { return one.q != block_rows(p, bits); });
  return blocks;
}

BlockSizes choose_for_equal_lengths(const Problem& p, const DeviceInfo& device) {
  BlockSizes best;
  double least = std::numeric_limits<double>::infinity();
  for (const BlockSizes& blocks : blocks_with_rows(p, Bits::of_batch)) {
    const double ns = predicted_ns(p, device, blocks, choose_splits(p, device, blocks));
    if (ns >= least) continue;
    least = ns;
    best = blocks;
  }
  return best;
}

// One thread block of 8 warps makes fewer parts to merge. Two of 4 hide each other's ends where a
// portion has many requests, for all that the host knows.
BlockSizes choose_for_portions(const Problem& p, const DeviceInfo& device) {
  constexpr int64_t kManyRequests = 4;  // of a portion
  const std::vector<BlockSizes> blocks = blocks_with_rows(p, Bits::of_batch);
  const bool many = p.batch >= kManyRequests * plan_portions(p, device, blocks.front()).portions;
  return many ? blocks.back() : blocks.front();
}

BlockSizes choose(const Problem& p, const DeviceInfo& device) {
  return p.lengths ? choose_for_portions(p, device) : choose_for_equal_lengths(p, device);
}
BlockSizes choose_batch_invariant(const Problem& p, const DeviceInfo&) {
  return blocks_with_rows(p, Bits::of_request).back();
}

template <Bits kBits>
CudaKernel<DecodeArguments> kernel_at(const Launch& at) {
  const auto variants = variants_for(at, kBits);
  const auto& variant = *std::ranges::find_if(variants, [&](const auto& variant) {
    return fits(variant, at.problem) && variant.blocks == at.blocks;
  });
  return variant.kernel("sm90_decode", at.problem.dtype);
}

template <Bits kBits>
std::vector<KernelFacts> facts(const Launch& at) {
  return {kernel_facts(kernel_at<kBits>(at))};
}

// How the keys are divided: each unit alike, or all requests into portions.
struct Division {
  std::optional<PortionPlan> portions;
  Splits splits;

  Division(const Launch& at, Bits bits) {
    const Problem& p = at.problem;
    if (bits == Bits::of_request) {
      portions = plan_batch_invariant_portions(p, at.device, at.blocks);
    } else if (p.lengths) {
      portions = plan_portions(p, at.device, at.blocks);
    } else {
      splits = choose_splits(p, at.device, at.blocks);
    }
  }
};

template <Bits kBits>
std::string describe_variant(const Launch& at) {
  const Division division(at, kBits);
  const std::string name =
      kBits == Bits::of_batch ? "sm90_decode " : "sm90_decode_batch_invariant ";
  std::string text = name + describe(at.blocks);
  if (!division.portions) {
    return text + ", splits " + std::to_string(division.splits.clusters) + "x" +
           std::to_string(division.splits.cluster_size);
  }
  if (kBits == Bits::of_request) {
    return text + ", " + std::to_string(kBatchInvariantKeys) + " keys a portion";
  }
  return text + ", " + std::to_string(division.portions->portions) + " portions";
}

// Rows of a part of a unit in portions that there is memory for.
int64_t part_rows(const Launch& at) {
  return std::min<int64_t>(at.blocks.q, packed_rows(at.problem));
}

// The parts of the workspace, in bytes from its start; empty if nothing is merged in memory.
struct Workspace {
  size_t sums = 0, announced = 0, end = 0;

  Workspace(const Launch& at, const Division& division) {
    const Problem& p = at.problem;
    int64_t rows = 0, rows_of_sums = 0, counters = 0;
    if (const auto& portions = division.portions) {
      counters = portions->most_portions * portions->thread_blocks;
      rows = rows_of_sums = counters * portions->part_slots() * part_rows(at);
    } else if (division.splits.clusters > 1) {
      const int64_t units = p.batch * p.kv_heads * row_blocks(p, at.blocks);
      rows = units * division.splits.clusters * at.blocks.q;
      rows_of_sums = rows * division.splits.cluster_size;
      counters = units * division.splits.cluster_size;
    }
    sums = static_cast<size_t>(rows * p.value_dim()) * sizeof(float);
    announced = sums + static_cast<size_t>(rows_of_sums) * 2 * sizeof(float);
    end = announced + static_cast<size_t>(counters) * sizeof(unsigned);
  }
};

// A launch begins with all of it poisoned, and leaves it so (DecodeMerge).
static_assert(kPoisonByte == 0xff);
template <Bits kBits>
size_t workspace_bytes(const Launch& at) {
  return Workspace(at, Division(at, kBits)).end;
}

// The keys that the blocks of rows of a request read: each those that its queries see.
int64_t requested_keys(const Problem& request, const BlockSizes& blocks) {
  int64_t keys = 0;
  for (int64_t first = 0; first < packed_rows(request); first += blocks.q) {
    const int64_t last = std::min(first + blocks.q, packed_rows(request)) - 1;
    const int64_t end = request.visible_keys(last / request.heads_per_kv_head()).end;
    keys += end - std::min(end, request.visible_keys(first / request.heads_per_kv_head()).first);
  }
  return keys;
}

template <Bits kBits>
std::optional<Schedule> schedule(const Launch& at) {
  const Problem& p = at.problem;
  const Division division(at, kBits);
  constexpr int64_t kFloat = sizeof(float);
  if (const auto& plan = division.portions) {
    const PortionAccount account = account_of_portions(p, at.blocks, *plan);
    const int64_t parts = account.parts_in_memory * p.kv_heads;
    const int64_t row_bytes = (p.value_dim() + 2) * kFloat;
    return Schedule{
        .splits = account.most_parts,
        .workers = std::min(account.portions, plan->portions_at_once) * plan->thread_blocks,
        .partial_bytes = parts * packed_rows(p) * row_bytes,
        .imbalance = account.imbalance};
  }
  const Splits& splits = division.splits;
  const int64_t units = p.batch * p.kv_heads * row_blocks(p, at.blocks);
  const int64_t row_floats = p.value_dim() + 2 * splits.cluster_size;
  const int64_t parts = splits.clusters > 1 ? splits.clusters : 0;
  return Schedule{.splits = splits.count(),
                  .workers = units * splits.count(),
                  .partial_bytes = p.query_rows() * parts * row_floats * kFloat,
                  .imbalance = 1};
}

// Partial results are written and read. A key's page is looked up for itself. Every split of a unit
// reads its queries.
template <Bits kBits>
int64_t requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  const Division division(at, kBits);
  const int64_t keys = p.kv_heads * p.sum_of_requests([&](const Problem& request) {
    return requested_keys(request, at.blocks);
  });
  const int64_t row_bytes = p.head_dim * element_size(p.dtype);
  const int64_t value_bytes = p.value_dim() * element_size(p.dtype);
  const int64_t key_bytes = (p.head_dim + p.value_dim()) * element_size(p.key_dtype());
  const int64_t rows = p.q_heads * p.q_tokens();
  const int64_t entry_bytes = p.is_paged() ? sizeof(int32_t) : 0;
  return rows * (row_bytes * division.splits.count() + value_bytes + int64_t{sizeof(float)}) +
         keys * (key_bytes + entry_bytes) + 2 * schedule<kBits>(at)->partial_bytes;
}

// Which keys queries see, as DecodeArguments has it: within 32 bits.
struct VisibleFrom {
  int first, end;
  bool ends_right;

  VisibleFrom(const Problem& p, const Division& division) : ends_right(false) {
    if (!division.portions) {
      const Band limits = band(p);
      first = static_cast<int>(std::max(limits.first_from, -kMaxLength));
      end = static_cast<int>(std::min(limits.end_from, kMaxLength));
      return;
    }
    // Relative to each request's own diagonal. From the last query on, all keys are seen.
    ends_right = p.mask != Mask::causal_top_left;
    first = static_cast<int>(-std::min(p.window_left.value_or(kMaxLength), kMaxLength));
    end = static_cast<int>(std::min(p.window_right.value_or(kMaxQueries), kMaxQueries) + 1);
    if (p.mask != Mask::none) end = 1;
  }
};

template <Bits kBits>
void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
            Stream stream) {
  const Problem& p = at.problem;
  if (p.q_len == 0) return;  // no request has a query
  const Division division(at, kBits);
  const PortionPlan portions = division.portions.value_or(PortionPlan());
  const Splits& splits = division.splits;
  const VisibleFrom visible(p, division);
  const Workspace offsets(at, division);
  const auto part = [&](size_t offset) { return static_cast<char*>(workspace) + offset; };
  const int64_t blocks = row_blocks(p, at.blocks);
  const DecodeArguments arguments{
      .tensors = forward_tensors(in, out),
      .kv_heads = static_cast<int>(p.kv_heads),
      .group = static_cast<int>(p.heads_per_kv_head()),
      .q_len = static_cast<int>(p.q_len),
      .kv_len = static_cast<int>(p.kv_len),
      .head_dim = static_cast<int>(p.head_dim),
      .value_dim = static_cast<int>(p.value_dim()),
      .first_from = visible.first,
      .end_from = visible.end,
      .inverse_group = 1 / static_cast<float>(p.heads_per_kv_head()),
      .row_blocks = static_cast<int>(blocks),
      .clusters = splits.clusters,
      .cluster_size = splits.cluster_size,
      .scale_log2 = static_cast<float>(p.softmax_scale() * std::numbers::log2e),
      .partial_o = reinterpret_cast<float*>(workspace),
      .partial_sums = reinterpret_cast<float*>(part(offsets.sums)),
      .announced = reinterpret_cast<unsigned*>(part(offsets.announced)),
      .k_factors = in.k.descales.data,
      .v_factors = in.v.descales.data,
      .factor_stride = static_cast<int>(in.k.descales.head_stride),
      .block_table = in.k.pages.table,
      .table_stride = in.k.pages.stride,
      .page_size = Divisor(std::min(p.page_size.value_or(kMaxLength), kMaxLength)),
      .cu_seqlens_q = at.cu_seqlens_q,
      .cu_seqlens_k = at.cu_seqlens_k,
      .is_ragged = p.is_ragged(),
      .ends_right = visible.ends_right,
      .batch = static_cast<int>(p.batch),
      .logsumexp_batch = p.is_ragged() ? 0 : p.q_heads * p.q_len,
      .logsumexp_head = p.is_ragged() ? p.q_tokens() : p.q_len,
      .portions = static_cast<int>(portions.portions),
      .portion_tiles = static_cast<int>(portions.tiles),
      .tiles_of_ends = static_cast<int>(portions.tiles_of_ends),
      .part_slots = static_cast<int>(portions.part_slots()),
      .part_rows = static_cast<int>(part_rows(at)),
  };
  const ClusterGrid grid =
      division.portions ? ClusterGrid{.x = blocks, .y = p.kv_heads, .z = portions.portions_at_once}
                        : ClusterGrid{.x = p.kv_heads * blocks,
                                      .y = p.batch,
                                      .z = splits.count(),
                                      .cluster_size = splits.cluster_size};
  launch_clusters(kernel_at<kBits>(at), grid, arguments, stream);
}

template <Bits kBits>
constexpr AttentionKernel decode_family(std::string_view name) {
  return {.name = name,
          .family = name,
          .device = DeviceKind::cuda,
          .pass = Pass::forward,
          .needs_aligned_rows = true,
          .knows_windows = true,
          .knows_head_dim_v = true,
          .knows_lengths = true,
          .knows_pages = true,
          .knows_kv_dtype = true,
          .knows_fp32_outputs = kBits == Bits::of_batch,  // of equal lengths, without pages
          .why_unsupported = why_unsupported<kBits>,
          .choose = kBits == Bits::of_batch ? choose : choose_batch_invariant,
          .variant = describe_variant<kBits>,
          .workspace_bytes = workspace_bytes<kBits>,
          .requested_bytes = requested_bytes<kBits>,
          .schedule = schedule<kBits>,
          .facts = facts<kBits>,
          .launch = launch<kBits>};
}

}  // namespace
}  // namespace flashbench::kernels::sm90

namespace flashbench::kernels {

extern const AttentionKernel kSm90Decode = sm90::decode_family<sm90::Bits::of_batch>("sm90_decode");

// A request's results have the same bits alone and in any batch.
extern const AttentionKernel kSm90DecodeBatchInvariant =
    sm90::decode_family<sm90::Bits::of_request>("sm90_decode_batch_invariant");

}  // namespace flashbench::kernels
