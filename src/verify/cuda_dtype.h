// The CUDA type of each dtype.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>

#include "attention/problem.h"

namespace flashbench::verify {

// Calls body with a zero of the type that holds the dtype's elements.
template <typename Body>
void with_type(Dtype dtype, const Body& body) {
  switch (dtype) {
    case Dtype::fp32:
      return body(0.0f);
    case Dtype::fp16:
      return body(__half{});
    case Dtype::bf16:
      return body(__nv_bfloat16{});
    case Dtype::e4m3:
      break;
  }
  throw std::logic_error("no type for this dtype");
}

}  // namespace flashbench::verify
