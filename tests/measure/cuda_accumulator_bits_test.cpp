// Hopper's tensor cores against the CPU emulation of them; skipped on any other GPU.
#include <gtest/gtest.h>

#include "device/cuda.h"
#include "emulated_add_products.h"

namespace flashbench {
namespace {

class CudaAccumulatorBits : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    device_ = make_cuda_device(0);
    if (const auto why = why_no_wgmma(device_->info())) GTEST_SKIP() << *why;
  }

  std::unique_ptr<Device> device_;
};

// Small integers, whose sums are exact, and differ by row, column and product.
TEST_F(CudaAccumulatorBits, AreOfStepsThatMultiply) {
  ProductStep step;
  for (size_t i = 0; i < step.a.size(); ++i) {
    step.a[i] = static_cast<float>(i * 7 % 11) - 5;
    step.b[i] = static_cast<float>(i * 5 % 13) - 6;
    step.sums[i] = static_cast<float>(i % 29) - 14;
  }
  ProductStep expected = step;
  emulated(add_exact)(expected);
  wgmma_add_products (*device_)(step);
  EXPECT_EQ(step.sums, expected.sums);
}

TEST_F(CudaAccumulatorBits, AreThoseOfTheEmulation) {
  const AccumulatorBits found = accumulator_bits(wgmma_add_products(*device_));
  const AccumulatorBits expected = accumulator_bits(emulated(add_truncated));
  EXPECT_EQ(found.of_sum, expected.of_sum);
  EXPECT_EQ(found.beside_sum, expected.beside_sum);
  EXPECT_EQ(found.least_beside_product, expected.least_beside_product);
  EXPECT_EQ(found.most_beside_product, expected.most_beside_product);
  EXPECT_EQ(found.accumulator(), "fp22");
}

}  // namespace
}  // namespace flashbench
