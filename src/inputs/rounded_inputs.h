// The inputs of a problem with a recipe (Problem::quantize), rounded by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/recipe.h"
#include "attention/tensors.h"
#include "host/thread_pool.h"
#include "inputs/quantize.h"

namespace flashbench {

// What a kernel of 8-bit products multiplies: inputs that are bytes, or RoundedInputs.
struct ByteInputs {
  ConstTensorView q, k, v;
  ByteFormat qk_format = ByteFormat::e4m3;
  float score_factor = 1;  // RoundedInputs::score_factor
};

class RoundedInputs {
 public:
  // Takes memory_bytes of host memory, which must outlive this.
  RoundedInputs(const Problem&, void* memory);
  static size_t memory_bytes(const Problem&);

  // Rounds Q, K and V, which are in host memory.
  void round(const Inputs&, ThreadPool&);

  // What became of them: bytes [batch, heads, length, dim] with factors.
  const ConstTensorView& q() const { return q_; }
  const ConstTensorView& k() const { return k_; }
  const ConstTensorView& v() const { return v_; }
  ByteFormat qk_format() const { return recipe_.int8_qk ? ByteFormat::int8 : ByteFormat::e4m3; }

  ByteInputs bytes() const { return {q_, k_, v_, qk_format(), score_factor()}; }

  // Of the bytes' dot products, with their factors: the dot products of the problem are those times
  // this, as a Hadamard matrix has scaled them.
  float score_factor() const;

  // What is added to the logsumexp of a row whose scores are of K less its mean: the scale times
  // the row of Q, before rounding, times that mean. 0 without `smooth_k`.
  double logsumexp_shift(const ConstTensorView& q, int64_t b, int64_t h, int64_t row) const;

 private:
  struct Parts;  // of the memory

  Problem problem_;
  Recipe recipe_;
  ConstTensorView q_, k_, v_;
  uint8_t *q_bytes_, *k_bytes_, *v_bytes_;
  float *q_descales_, *k_descales_, *v_descales_;
  float* k_mean_;  // [batch, kv_heads, head_dim]; null without smooth_k
};

// The fp32 values that bytes with factors mean, times `factor`; strides as the view has them, which
// must be dense. In host memory.
std::vector<float> dequantize(const ConstTensorView& bytes, ByteFormat, float factor, ThreadPool&);

}  // namespace flashbench
