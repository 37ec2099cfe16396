// Vector types and exp2 for the SIMD target being compiled. Highway includes this file once per
// target.
#if defined(FLASHBENCH_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FLASHBENCH_KERNELS_CPU_SIMD_INL_H_
#undef FLASHBENCH_KERNELS_CPU_SIMD_INL_H_
#else
#define FLASHBENCH_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

HWY_BEFORE_NAMESPACE();
namespace flashbench::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Vector = hn::Vec<FloatTag>;
constexpr size_t kLanes = HWY_LANES(float);

// 2^x for x <= 127, with a relative error of at most 3 * 2^-24. Exactly 1 at 0; exactly 0 for x <=
// -126, including -infinity, so that denormals never appear; NaN for NaN.
//
// Let x = n + r with n the nearest integer. Adding `kShift` leaves n + 126 in the low bits of the
// sum; shifted into the exponent field, they give 2^(n-1), or 0 for n = -126. The polynomial
// approximates 2 * 2^r on [-1/2, 1/2]: minimax in the relative error, with its value at 0 fixed.
HWY_INLINE Vector exp2(Vector x) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  constexpr float kShift = 12582912.0f + 126.0f;  // 1.5 * 2^23 + 126
  const Vector lowest = hn::Set(d, -126.0f);
  x = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);  // not Max, which may drop a NaN
  const Vector shifted = hn::Add(x, hn::Set(d, kShift));
  const Vector r = hn::Sub(x, hn::Sub(shifted, hn::Set(d, kShift)));
  Vector p = hn::Set(d, 0.002652945462614298f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.019343025982379913f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.11101467162370682f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.48044484853744507f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.3862940073013306f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.0f));
  const Vector half_power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  return hn::Mul(p, half_power);
}

// What the sum of a row of 2^(score - maximum) gives: the factor of its O, 0 if it saw no key, and
// its logsumexp.
HWY_INLINE float inverse_of(float sum) {
  return sum == 0.0f ? 0.0f : 1.0f / sum;
}
HWY_INLINE float natural_logsumexp(float maximum, float sum) {
  return (maximum + std::log2(sum)) * std::numbers::ln2_v<float>;
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::kernels
HWY_AFTER_NAMESPACE();

#endif  // include once per target
