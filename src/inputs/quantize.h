// Rounding of tensors to bytes with factors (attention/tensors.h, Descales).
#pragma once

#include <cstdint>
#include <functional>

#include "attention/tensors.h"
#include "host/thread_pool.h"

namespace flashbench {

// What a byte means, before its factor.
enum class ByteFormat { e4m3, int8 };

float decode(ByteFormat, uint8_t byte);

// The largest magnitude of a format, as the tool uses it: int8 without -128.
float most_of(ByteFormat);

// The factor of values whose largest magnitude is `amax`, which then becomes `most`; 1 of zeros.
// NaN for an infinity: nothing would be right.
float descale_of(float amax, float most);

// The least power of two that is at least that factor: values of few bits stay what they are.
float exact_descale_of(float amax, float most);

// Gives row `row` of head `h` of request `b`, of `head_dim` numbers.
using RowSource = std::function<void(int64_t b, int64_t h, int64_t row, float* to)>;

// Gives the factor of elements whose largest magnitude is `amax`, in a format whose largest is
// `most`.
using DescaleRule = std::function<float(float amax, float most)>;

// Rounds the rows to bytes in host memory: each of the factors of `to`, which are at `descales`,
// follows from the largest magnitude among its elements, and each element is its value over its
// factor, rounded to the nearest, half-way values to even. A NaN counts in no factor and stays NaN;
// in int8, which has none, its factor is NaN.
void quantize(const RowSource& rows, ByteFormat, const TensorView& to, float* descales, ThreadPool&,
              const DescaleRule& rule = descale_of);

}  // namespace flashbench
