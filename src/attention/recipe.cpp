#include "attention/recipe.h"

#include <bit>
#include <stdexcept>

namespace flashbench {

Recipe recipe_of(Quantize quantize) {
  switch (quantize) {
    case Quantize::none:
      break;
    case Quantize::e4m3_tensor:
      return {.descale = Descale::per_tensor};
    case Quantize::e4m3_head:
      return {.descale = Descale::per_head};
    case Quantize::e4m3_block:
      return {.descale = Descale::per_block};
    case Quantize::e4m3_block_smooth_k:
      return {.descale = Descale::per_block, .smooth_k = true};
    case Quantize::e4m3_tensor_hadamard:
      return {.descale = Descale::per_tensor, .hadamard = true};
    case Quantize::e4m3_block_hadamard:
      return {.descale = Descale::per_block, .hadamard = true};
    case Quantize::e4m3_block_hadamard_smooth_k:
      return {.descale = Descale::per_block, .smooth_k = true, .hadamard = true};
    case Quantize::int8_qk:
      return {.descale = Descale::per_block, .hadamard = true, .int8_qk = true};
  }
  throw std::logic_error("no recipe");
}

bool has_hadamard(int64_t size) {
  const auto unsigned_size = static_cast<uint64_t>(size);
  return std::has_single_bit(unsigned_size) ||
         (size % 12 == 0 && std::has_single_bit(unsigned_size / 12));
}

}  // namespace flashbench
