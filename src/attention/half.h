// Scalar conversions between fp32 and the two 16-bit formats, on their bit patterns; round to
// nearest even, NaN stays NaN, overflow becomes infinity (IEEE 754).
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace flashbench {

float fp16_to_float(uint16_t bits);
uint16_t float_to_fp16(float value);
float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);

// Element `index` of an array of `dtype`, read or written through fp32; of e4m3 without its factor.
float load_element(const void* data, Dtype dtype, int64_t index);
void store_element(void* data, Dtype dtype, int64_t index, float value);

// `value` as it reads after being stored in `dtype`.
float round_to(Dtype dtype, float value);

}  // namespace flashbench
