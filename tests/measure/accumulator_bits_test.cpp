#include "measure/accumulator_bits.h"

#include <gtest/gtest.h>

#include "emulated_add_products.h"

namespace flashbench {
namespace {

// Rounds the sum of a step to the 13th bit of its own, in which the products are exact.
void add_and_cut_off(ProductStep& step) {
  const AddProducts add = emulated(add_exact);
  add(step);
  const ProductStep::Matrix exact = step.sums;
  step.a.fill(0), step.b.fill(0);
  emulated(add_truncated)(step);
  EXPECT_LE(step.sums[0], exact[0]);
}

// Sums products in halves of the step, one after the other.
void add_halves(ProductStep& step) {
  for (const bool second : {false, true}) {
    ProductStep half = step;
    for (size_t i = 0; i < half.b.size(); ++i) {
      if ((i >= half.b.size() / 2) != second) half.b[i] = 0;
    }
    emulated(add_truncated)(half);
    step.sums = half.sums;
  }
}

// Rounds sums up.
void add_nothing_but_a_bit(ProductStep& step) {
  for (float& sum : step.sums) sum += 0x1p-22f;
}

TEST(AccumulatorBits, AreThoseOfTheEmulation) {
  const AccumulatorBits bits = accumulator_bits(emulated(add_truncated));
  EXPECT_EQ(bits, (AccumulatorBits{13, 13, 13, 13}));
  EXPECT_EQ(bits.accumulator(), "fp22");
}

TEST(AccumulatorBits, OfFp32AreAll) {
  const AccumulatorBits bits = accumulator_bits(emulated(add_exact));
  EXPECT_EQ(bits, (AccumulatorBits{23, 23, 23, 23}));
  EXPECT_EQ(bits.accumulator(), "fp32");
}

// 31 or 32 products of 2^-17 are between one and two units of the 13th bit.
TEST(AccumulatorBits, TellASumThatIsCutOffFromProductsThatAre) {
  const AccumulatorBits bits = accumulator_bits(add_and_cut_off);
  EXPECT_EQ(bits, (AccumulatorBits{13, 18, 17, 17}));
  EXPECT_EQ(bits.accumulator(), "neither fp22 nor fp32");
}

// Before the half with the large product, the 16 of the other add up: 16 of 2^-17 are a unit.
TEST(AccumulatorBits, TellHowManyProductsAreAlignedAtOnce) {
  EXPECT_EQ(accumulator_bits(add_halves), (AccumulatorBits{13, 13, 13, 17}));
}

TEST(AccumulatorBits, ThereAreNoneOfASumThatIsRoundedUp) {
  EXPECT_EQ(accumulator_bits(add_nothing_but_a_bit).of_sum, 0);
}

TEST(AccumulatorBits, NeedHopper) {
  DeviceInfo info;
  for (const int capability : {0, 80, 89, 100, 120}) {
    info.compute_capability = capability;
    EXPECT_EQ(why_no_wgmma(info), "needs a GPU of compute capability 9.0: wgmma is Hopper's alone");
  }
  info.compute_capability = 90;
  EXPECT_EQ(why_no_wgmma(info), std::nullopt);
}

}  // namespace
}  // namespace flashbench
