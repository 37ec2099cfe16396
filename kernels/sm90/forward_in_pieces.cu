// The variants of the forward kernel for Hopper for dense problems whose last tiles are in pieces.
#include <array>

#include "kernels/sm90/forward_variants.h"

namespace flashbench::kernels::sm90 {
namespace {

constexpr std::array kVariantsInPieces = forward_variants_of<kLargeTiles, with_pieces>();

}  // namespace

std::span<const Variant<Arguments>> forward_variants_in_pieces() {
  return kVariantsInPieces;
}

}  // namespace flashbench::kernels::sm90
