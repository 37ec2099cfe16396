// The variants of the forward kernel for Hopper with O in fp32, which several devices merge. They
// are few, as this file takes half a minute to compile: other head dimensions run with the next
// larger one.
#include <array>

#include "kernels/sm90/forward_variants.h"

namespace flashbench::kernels::sm90 {
namespace {

constexpr std::array kVariantsFp32O{
    forward_variant<with_fp32_o(configuration(64, 192, 128, 2))>(),
    forward_variant<with_fp32_o(configuration(128, 192, 64, 4))>(),
    forward_variant<with_fp32_o(configuration(256, 128, 64, 2))>(),
};

}  // namespace

std::span<const Variant<Arguments>> forward_variants_fp32_o() {
  return kVariantsFp32O;
}

}  // namespace flashbench::kernels::sm90
