// Division by multiplication, on the host.
#include "kernels/common/divisor.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace flashbench::kernels {
namespace {

TEST(Divisor, DividesEveryDividendBelowTwoToThe31) {
  for (const uint32_t divisor : {1u, 2u, 3u, 7u, 16u, 48u, 255u, 256u, 257u, 1000u, 65535u, 65537u,
                                 (1u << 29) + 1, (1u << 30) - 1, 1u << 30}) {
    const Divisor by(divisor);
    const auto expect_exact = [&](int64_t dividend) {
      if (dividend < 0 || dividend > std::numeric_limits<int32_t>::max()) return;
      ASSERT_EQ(by.quotient(static_cast<int>(dividend)), dividend / divisor) << divisor;
      ASSERT_EQ(by.remainder(static_cast<int>(dividend)), dividend % divisor) << divisor;
    };
    // Around multiples, where a quotient that is not exact shows first.
    for (int64_t multiple = 0; multiple <= int64_t{1} << 31;
         multiple += divisor * (1 + multiple / divisor / 50)) {
      for (const int64_t beside : {-1, 0, 1}) expect_exact(multiple + beside);
    }
    expect_exact(std::numeric_limits<int32_t>::max());
  }
}

}  // namespace
}  // namespace flashbench::kernels
