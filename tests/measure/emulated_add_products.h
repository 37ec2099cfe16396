// Steps of products as the CPU emulation of 8-bit kernels adds them.
#pragma once

#include "measure/accumulator_bits.h"
#include "providers/emulated_products.h"

namespace flashbench {

// `add` is add_truncated or add_exact.
inline AddProducts emulated(decltype(add_exact)* add) {
  return [add](ProductStep& step) {
    for (size_t row = 0; row < ProductStep::kSize; ++row) {
      const size_t first = row * ProductStep::kSize;
      add(step.sums.data() + first, step.a.data() + first, step.b.data(), ProductStep::kSize,
          ProductStep::kSize, ProductStep::kSize);
    }
  };
}

}  // namespace flashbench
