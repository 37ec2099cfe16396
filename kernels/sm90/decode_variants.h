// The compiled variants of the decoding kernel for Hopper.
#pragma once

#include <array>
#include <span>

#include "kernels/sm90/decode.cuh"
#include "kernels/sm90/decode_splits.h"
#include "kernels/sm90/variant.h"

namespace flashbench::kernels::sm90 {

struct DecodeVariant : Variant<DecodeArguments> {
  int value_dim;
};

template <DecodeBatch kBatch, int kHeadDim, int kValueDim, int kRowTiles, int kKeys, int kWarps,
          int kStages, bool kByteCache = false, bool kFp32O = false>
constexpr DecodeVariant decode_variant() {
  constexpr DecodeConfig kConfig{
      kHeadDim, kValueDim,  kRowTiles, kKeys, kWarps, kStages, decode_at_once(kHeadDim, kWarps),
      kBatch,   kByteCache, kFp32O};
  using Half = Decode<__half, kConfig>;
  return {variant_of<Half>(decode_kernel<Half>, decode_kernel<Decode<__nv_bfloat16, kConfig>>),
          kValueDim};
}

// One thread block of 8 warps to a multiprocessor is faster where there are few; two of 4 warps
// hide each other's ends where there are many. Of those that are predicted to take as long, the
// first is chosen.
template <DecodeBatch kBatch, bool kFp32O = false>
constexpr std::array kDecodeVariants{
    decode_variant<kBatch, 64, 64, 1, 32, 8, 2, false, kFp32O>(),
    decode_variant<kBatch, 64, 64, 1, 32, 4, 2, false, kFp32O>(),
    decode_variant<kBatch, 64, 64, 2, 32, 8, 2, false, kFp32O>(),
    decode_variant<kBatch, 64, 64, 2, 32, 4, 2, false, kFp32O>(),
    decode_variant<kBatch, 96, 96, 1, 16, 8, 3, false, kFp32O>(),
    decode_variant<kBatch, 96, 96, 1, 16, 4, 3, false, kFp32O>(),
    decode_variant<kBatch, 96, 96, 2, 16, 8, 3, false, kFp32O>(),
    decode_variant<kBatch, 96, 96, 2, 16, 4, 3, false, kFp32O>(),
    decode_variant<kBatch, 128, 128, 1, 16, 8, 2, false, kFp32O>(),
    decode_variant<kBatch, 128, 128, 1, 16, 4, 2, false, kFp32O>(),
    decode_variant<kBatch, 128, 128, 2, 16, 8, 2, false, kFp32O>(),
    decode_variant<kBatch, 128, 128, 2, 16, 4, 2, false, kFp32O>(),
    decode_variant<kBatch, 192, 128, 1, 16, 8, 2, false, kFp32O>(),
    decode_variant<kBatch, 192, 128, 1, 16, 4, 2, false, kFp32O>(),
    decode_variant<kBatch, 192, 192, 1, 16, 8, 2, false, kFp32O>(),
    decode_variant<kBatch, 256, 256, 1, 16, 4, 2, false, kFp32O>(),
};

// Those of DecodeBatch::equal with O in fp32 (DecodeConfig::fp32_o), in the same order.
std::span<const DecodeVariant> decode_variants_fp32_o();

}  // namespace flashbench::kernels::sm90
