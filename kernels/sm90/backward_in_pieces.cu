// The variants of the backward pass's main kernel for Hopper for dense problems whose last blocks
// of keys are in pieces.
#include <array>

#include "kernels/sm90/backward_variants.h"

namespace flashbench::kernels::sm90 {
namespace {

constexpr std::array kVariantsInPieces = backward_variants_with_80<true>();

}  // namespace

std::span<const Variant<BackwardArguments>> backward_variants_in_pieces() {
  return kVariantsInPieces;
}

}  // namespace flashbench::kernels::sm90
