// The variants of the forward kernel for Hopper that serve requests of different lengths, and
// windows. They are few, as this file takes a minute to compile: other head dimensions run with the
// next larger one.
#include <array>

#include "kernels/sm90/forward_variants.h"

namespace flashbench::kernels::sm90 {
namespace {

constexpr Config by_request(int head_dim, int block_q, int block_kv, int stages) {
  return configuration(head_dim, block_q, block_kv, stages, true);
}

constexpr std::array kVariantsByRequest{
    forward_variant<by_request(64, 192, 128, 2)>(),
    forward_variant<by_request(96, 192, 64, 4)>(),
    forward_variant<by_request(128, 192, 64, 4)>(),
    forward_variant<by_request(192, 128, 80, 2)>(),
    forward_variant<by_request(256, 128, 64, 2)>(),
    // For short requests.
    forward_variant<by_request(64, 64, 64, 2)>(),
    forward_variant<by_request(128, 64, 64, 2)>(),
};

}  // namespace

std::span<const Variant<Arguments>> forward_variants_by_request() {
  return kVariantsByRequest;
}

}  // namespace flashbench::kernels::sm90
