// Sums of products as tensor cores form them.
#pragma once

#include <cstdint>

namespace flashbench {

// One step of at most Accumulator::kStepKeys products: sum[i] += the sum over k of
// weights[k] * rows[k * stride + i], for i in [0, count). Each product and the sum so far are cut
// off, towards zero, behind Accumulator::kFractionBits bits of the largest of them, then added
// exactly, and the result is cut off behind as many bits of its own.
void add_truncated(float* sum, const float* weights, const float* rows, int64_t products,
                   int64_t stride, int64_t count);

// The same in fp32, which is exact for products of int8.
void add_exact(float* sum, const float* weights, const float* rows, int64_t products,
               int64_t stride, int64_t count);

}  // namespace flashbench
