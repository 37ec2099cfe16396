// Host code of the backward pass for Hopper: a main kernel of its own between the launches of
// kernels/backward/backward.h, and by request one that lists its work.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/attention.h"
#include "kernels/backward/family.h"
#include "kernels/backward/split.h"
#include "kernels/common/blocks.h"
#include "kernels/common/launch.h"
#include "kernels/common/mask.h"
#include "kernels/common/requests.h"
#include "kernels/common/tensor_cores.h"
#include "kernels/sm90/backward_variants.h"
#include "kernels/sm90/tensor_map.h"

namespace flashbench::kernels::sm90 {
namespace {

constexpr std::array kDeterministicVariants = backward_variants<true, false>();

constexpr std::array kVariants = backward_variants_with_80<false>();

template <bool kDeterministic>
std::span<const Variant<BackwardArguments>> variants(const Problem& p) {
  if (is_by_request(p)) return backward_variants_by_request(kDeterministic);
  if (kDeterministic) return kDeterministicVariants;
  return kVariants;
}

// Rows [first, end) of a tensor.
ConstTensorView rows(ConstTensorView t, int64_t first, int64_t end) {
  t.data = static_cast<const char*>(t.data) + first * t.row_stride * element_size(t.dtype);
  t.length = end - first;
  return t;
}

// The keys of a thread block.
int own_keys(const BlockSizes& blocks) {
  return blocks.kv / blocks.cluster;
}

// The columns of dK or dV that each consumer stores: half of them each, if all consumers share the
// same 64 keys, else all.
std::array<ConstTensorView, 2> stored_columns(const ConstTensorView& t, const BlockSizes& blocks) {
  const int64_t half = compiled_head_dim(t.head_dim) / 2;
  if (own_keys(blocks) > 64) return {t, t};
  ConstTensorView low = t, high = t;
  low.head_dim = half;
  high.head_dim = t.head_dim - half;
  high.data = static_cast<const char*>(t.data) + half * element_size(t.dtype);
  return {low, high};
}

// What all variants need but the tensor maps of Q to dV.
BackwardArguments common_arguments(const Launch& at, const backward::Arguments& shared,
                                   bool deterministic) {
  const Problem& p = at.problem;
  const auto statistics = [&](const float* of_rows) {
    return float_rows_map(of_rows, shared.batch * p.q_heads, shared.padded_q, at.blocks.q);
  };
  return {.logsumexp = statistics(shared.logsumexp_base_2),
          .d = statistics(shared.d),
          .dq_sums = shared.dq_sums,
          .dk_sums = shared.dk_sums,
          .dv_sums = shared.dv_sums,
          .turns = shared.turns,
          .tickets = shared.tickets,
          .work_list = shared.work_list,
          .piece_sums = shared.piece_sums,
          .piece_arrivals = shared.piece_arrivals,
          .batch = shared.batch,
          .q_heads = shared.q_heads,
          .kv_heads = shared.kv_heads,
          .group = shared.group,
          .q_len = shared.q_len,
          .key_end = shared.key_end,
          .padded_q = shared.padded_q,
          .padded_kv = shared.padded_kv,
          .parts = shared.parts,
          .adds_keys = shared.adds_keys,
          .diagonal = shared.diagonal,
          .key_blocks = shared.key_blocks,
          .sections = shared.sections,
          .rotation = deterministic && backward::rotates(at, shared.parts) ? shared.key_blocks : 0,
          .work_items = shared.work_items,
          .at_once = shared.at_once,
          .scale = shared.scale,
          .scale_log2 = shared.scale_log2,
          .requests = shared.requests,
          .whole_items = shared.whole_items,
          .pieces = shared.pieces};
}

// TMA reads rows outside of a tensor as zeros. The tensors leave out the queries that see no key
// and the keys that no query sees, so these are read as zeros, whatever they hold.
BackwardArguments arguments(const Launch& at, const Inputs& in, const Outputs& out,
                            const backward::Arguments& shared, bool deterministic) {
  const Problem& p = at.problem;
  const int64_t first_live = std::max<int64_t>(0, -diagonal(p));
  BackwardArguments a = common_arguments(at, shared, deterministic);
  a.q = tensor_map(rows(in.q, first_live, p.q_len), at.blocks.q);
  a.d_o = tensor_map(rows(in.d_o, first_live, p.q_len), at.blocks.q);
  a.k = tensor_map(rows(in.k, 0, shared.key_end), own_keys(at.blocks));
  a.v = tensor_map(rows(in.v, 0, shared.key_end), own_keys(at.blocks));
  a.first_live = static_cast<int>(first_live);
  if (shared.adds_keys) return a;  // the main kernel stores neither dK nor dV
  const auto dk = stored_columns(out.dk, at.blocks), dv = stored_columns(out.dv, at.blocks);
  for (size_t i = 0; i < 2; ++i) {
    a.dk[i] = tensor_map(dk[i], kWarpRows);
    a.dv[i] = tensor_map(dv[i], kWarpRows);
  }
  return a;
}

BackwardArguments arguments_by_request(const Launch& at, const Inputs& in, const Outputs& out,
                                       const backward::Arguments& shared, bool deterministic) {
  const auto dk = stored_columns(out.dk, at.blocks), dv = stored_columns(out.dv, at.blocks);
  BackwardArguments a = common_arguments(at, shared, deterministic);
  const auto split = [](CUtensorMap& map, RowSteps& steps, const RequestMap& both) {
    map = both.map;
    steps = both.steps;
  };
  split(a.q, a.q_steps, request_map(in.q, at.blocks.q));
  split(a.d_o, a.d_o_steps, request_map(in.d_o, at.blocks.q));
  split(a.k, a.k_steps, request_map(in.k, own_keys(at.blocks)));
  split(a.v, a.v_steps, request_map(in.v, own_keys(at.blocks)));
  for (size_t i = 0; i < 2; ++i) {
    split(a.dk[i], a.dk_steps, request_map(dk[i], kWarpRows));
    split(a.dv[i], a.dv_steps, request_map(dv[i], kWarpRows));
  }
  return a;
}

template <bool kIsDeterministic>
struct BackwardMain {
  static constexpr bool kDeterministic = kIsDeterministic;
  static constexpr std::string_view kName =
      kDeterministic ? "sm90_backward_deterministic" : "sm90_backward";
  static constexpr std::string_view kFamily = kDeterministic ? "sm90_deterministic" : "sm90";
  static constexpr bool kSplitsLastWave = !kDeterministic;  // each piece would need a turn at dQ
  static constexpr bool kKnowsRequests = true;
  static constexpr bool kGoesBackwards = kDeterministic;
  static constexpr Start kStart = Start::early;

  static std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
    if (auto why = why_no_tensor_cores(p, device)) return why;
    if (device.compute_capability != 90) {
      return "needs a GPU of compute capability 9.0: wgmma is Hopper's alone";
    }
    if (std::ranges::none_of(variants<kDeterministic>(p), [&](const auto& v) {
          return v.head_dim == compiled_head_dim(p.head_dim);
        })) {
      return "it takes head_dim 40 to 256";
    }
    return backward::why_too_many_rows(p);
  }

  static std::vector<BlockSizes> candidates(const Problem& p, const DeviceInfo& device) {
    return fitting_blocks(variants<kDeterministic>(p), p, device);
  }

  static BlockSizes choose(const Problem& p, const DeviceInfo& device) {
    return choose_blocks("sm90", p, device, candidates(p, device));
  }

  static backward::DqTiles dq_tiles(const Launch& at) {
    const auto& variant = variant_at(variants<kDeterministic>(at.problem), at);
    return variant.transposes_dq ? backward::DqTiles::transposed : backward::DqTiles::plain;
  }

  static bool is_persistent(const Launch& at) {
    return variant_at(variants<kDeterministic>(at.problem), at).persistent;
  }

  static std::optional<CudaKernel<BackwardArguments>> lister(const Launch& at) {
    const auto& variant = variant_at(variants<kDeterministic>(at.problem), at);
    if (variant.lister == nullptr) return std::nullopt;
    return CudaKernel<BackwardArguments>{"sm90_backward_list_work", variant.lister,
                                         backward::kListingThreads};
  }

  static CudaKernel<BackwardArguments> kernel(const Launch& at, bool in_pieces) {
    return variant_at(
               in_pieces ? backward_variants_in_pieces() : variants<kDeterministic>(at.problem), at)
        .kernel(kDeterministic ? "sm90_backward_main_deterministic" : "sm90_backward_main",
                at.problem.dtype);
  }

  static BackwardArguments arguments(const Launch& at, const Inputs& in, const Outputs& out,
                                     const backward::Arguments& shared) {
    return is_by_request(at.problem) ? arguments_by_request(at, in, out, shared, kDeterministic)
                                     : sm90::arguments(at, in, out, shared, kDeterministic);
  }
};

}  // namespace
}  // namespace flashbench::kernels::sm90

namespace flashbench::kernels {

extern const AttentionKernel kSm90Backward =
    backward::Family<sm90::BackwardMain<false>>::descriptor();

extern const AttentionKernel kSm90BackwardDeterministic =
    backward::Family<sm90::BackwardMain<true>>::descriptor();

}  // namespace flashbench::kernels
