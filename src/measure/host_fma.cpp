// Compiled once for each SIMD target of Highway; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/host_fma.cpp"
#include <hwy/foreach_target.h>  // comes before highway.h
#include <hwy/highway.h>

#include "measure/host_fma.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench::host_fma {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Two units with a latency of four cycles need eight chains. Two more still fit sixteen registers.
constexpr int kChains = 10;

float Run(int64_t steps) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.5f);  // every chain converges to 1
  // The chains start from different values, because a compiler merges equal chains.
  auto c0 = hn::Set(d, 0.0f), c1 = hn::Set(d, 0.1f), c2 = hn::Set(d, 0.2f), c3 = hn::Set(d, 0.3f);
  auto c4 = hn::Set(d, 0.4f), c5 = hn::Set(d, 0.5f), c6 = hn::Set(d, 0.6f), c7 = hn::Set(d, 0.7f);
  auto c8 = hn::Set(d, 0.8f), c9 = hn::Set(d, 0.9f);
  for (int64_t i = 0; i < steps; ++i) {
    c0 = hn::MulAdd(c0, factor, factor);
    c1 = hn::MulAdd(c1, factor, factor);
    c2 = hn::MulAdd(c2, factor, factor);
    c3 = hn::MulAdd(c3, factor, factor);
    c4 = hn::MulAdd(c4, factor, factor);
    c5 = hn::MulAdd(c5, factor, factor);
    c6 = hn::MulAdd(c6, factor, factor);
    c7 = hn::MulAdd(c7, factor, factor);
    c8 = hn::MulAdd(c8, factor, factor);
    c9 = hn::MulAdd(c9, factor, factor);
  }
  const auto low = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), c4);
  const auto high = hn::Add(hn::Add(hn::Add(c5, c6), hn::Add(c7, c8)), c9);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
}

double FlopsOfStep() {
  return 2.0 * kChains * static_cast<double>(hn::Lanes(hn::ScalableTag<float>()));
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench::host_fma
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flashbench::host_fma {

HWY_EXPORT(Run);
HWY_EXPORT(FlopsOfStep);

float run(int64_t steps) {
  return HWY_DYNAMIC_DISPATCH(Run)(steps);
}

double flops(int64_t steps) {
  return HWY_DYNAMIC_DISPATCH(FlopsOfStep)() * static_cast<double>(steps);
}

}  // namespace flashbench::host_fma
#endif
