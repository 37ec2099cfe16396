#include "kernels/sm80/backward.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backward/family.h"
#include "kernels/common/blocks.h"
#include "kernels/common/requests.h"
#include "kernels/common/tensor_cores.h"

namespace flashbench::kernels::sm80 {
namespace {

template <bool kIsDeterministic>
struct BackwardMain {
  static constexpr bool kDeterministic = kIsDeterministic;
  static constexpr std::string_view kName =
      kDeterministic ? "sm80_backward_deterministic" : "sm80_backward";
  static constexpr std::string_view kFamily = kDeterministic ? "sm80_deterministic" : "sm80";
  static constexpr bool kSplitsLastWave = false;
  static constexpr bool kKnowsRequests = true;
  static constexpr bool kGoesBackwards = false;
  static constexpr Start kStart = Start::after_end;

  static std::span<const Variant<backward::Arguments>> variants(const Problem& p) {
    return is_by_request(p) ? main_variants_by_request(kDeterministic)
                            : main_variants(kDeterministic);
  }

  static std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo& device) {
    if (auto why = why_no_tensor_cores(p, device)) return why;
    if (auto why = backward::why_too_many_rows(p)) return why;
    if (candidates(p, device).empty()) {
      return "a thread block of this GPU has too little shared memory for this head_dim";
    }
    return std::nullopt;
  }

  static std::vector<BlockSizes> candidates(const Problem& p, const DeviceInfo& device) {
    return fitting_blocks(variants(p), p, device);
  }

  static BlockSizes choose(const Problem& p, const DeviceInfo& device) {
    return choose_blocks("sm80", p, device, candidates(p, device));
  }

  static std::optional<CudaKernel<backward::Arguments>> lister(const Launch& at) {
    const auto& variant = variant_at(variants(at.problem), at);
    if (variant.lister == nullptr) return std::nullopt;
    return CudaKernel<backward::Arguments>{"sm80_backward_list_work", variant.lister,
                                           backward::kListingThreads};
  }
  static bool is_persistent(const Launch&) { return false; }
  static backward::DqTiles dq_tiles(const Launch&) { return backward::DqTiles::plain; }

  static CudaKernel<backward::Arguments> kernel(const Launch& at, bool /*in_pieces*/) {
    return variant_at(variants(at.problem), at).kernel("sm80_backward_main", at.problem.dtype);
  }

  static backward::Arguments arguments(const Launch&, const Inputs&, const Outputs&,
                                       const backward::Arguments& shared) {
    return shared;
  }
};

}  // namespace
}  // namespace flashbench::kernels::sm80

namespace flashbench::kernels {

extern const AttentionKernel kSm80Backward =
    backward::Family<sm80::BackwardMain<false>>::descriptor();

extern const AttentionKernel kSm80BackwardDeterministic =
    backward::Family<sm80::BackwardMain<true>>::descriptor();

}  // namespace flashbench::kernels
