// The variants of the decoding kernel for Hopper with O in fp32, which several devices merge: of
// each part of the keys.
#include "kernels/sm90/decode_variants.h"

namespace flashbench::kernels::sm90 {

std::span<const DecodeVariant> decode_variants_fp32_o() {
  return kDecodeVariants<DecodeBatch::equal, true>;
}

}  // namespace flashbench::kernels::sm90
