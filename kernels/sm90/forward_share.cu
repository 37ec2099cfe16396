// The variants of the forward kernel for Hopper for a GPU's share of a problem (kernels::Share).
// Other head dimensions run with the next larger one. Block sizes are those that long problems have
// on one GPU, so that O has the same bits, but for tiles that are in pieces there.
#include <array>

#include "kernels/sm90/forward_variants.h"

namespace flashbench::kernels::sm90 {
namespace {

constexpr std::array kVariantsShare{
    forward_variant<with_share(configuration(64, 192, 128, 2))>(),
    forward_variant<with_share(configuration(128, 192, 64, 4))>(),
    forward_variant<with_share(configuration(256, 128, 64, 2))>(),
};

}  // namespace

std::span<const Variant<Arguments>> forward_variants_share() {
  return kVariantsShare;
}

}  // namespace flashbench::kernels::sm90
