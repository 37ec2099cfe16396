// The 16-bit dtypes, which our tensor-core kernels take.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "attention/problem.h"

namespace flashbench::kernels {

// Selects one of two objects by dtype, e.g. of a kernel's two instances. Throws std::logic_error
// for any other dtype, which why_not_half refuses.
template <typename T>
T for_half(Dtype dtype, T fp16, T bf16) {
  switch (dtype) {
    case Dtype::fp16:
      return fp16;
    case Dtype::bf16:
      return bf16;
    case Dtype::fp32:
    case Dtype::e4m3:
      break;
  }
  throw std::logic_error("there is nothing for " + std::string(name(dtype)));
}

// A sentence that says why a kernel for these dtypes cannot take this dtype; empty if it can.
inline std::optional<std::string> why_not_half(Dtype dtype) {
  if (dtype == Dtype::fp16 || dtype == Dtype::bf16) return std::nullopt;
  return "tensor cores take fp16 and bf16, not " + std::string(name(dtype));
}

}  // namespace flashbench::kernels
