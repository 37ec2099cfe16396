#include "attention/recipe.h"

#include <gtest/gtest.h>

#include "attention/accumulator.h"

namespace flashbench {
namespace {

TEST(Recipe, EachHasPartsOfItsOwn) {
  EXPECT_THROW(recipe_of(Quantize::none), std::logic_error);
  EXPECT_EQ(recipe_of(Quantize::e4m3_tensor).descale, Descale::per_tensor);
  const Recipe all = recipe_of(Quantize::e4m3_block_hadamard_smooth_k);
  EXPECT_TRUE(all.hadamard && all.smooth_k && !all.int8_qk);
  EXPECT_TRUE(recipe_of(Quantize::int8_qk).int8_qk);
}

TEST(Recipe, HadamardSizes) {
  for (const int64_t size : {1, 2, 8, 16, 12, 24, 48, 64, 96, 128, 192, 256}) {
    EXPECT_TRUE(has_hadamard(size)) << size;
  }
  for (const int64_t size : {40, 56, 72, 80, 144, 200}) EXPECT_FALSE(has_hadamard(size)) << size;
}

TEST(Recipe, AccumulatorsAsTextInResults) {
  EXPECT_EQ(Accumulator{}.text(), "fp32");
  EXPECT_EQ((Accumulator{.truncates = true}.text()), "fp22");
  EXPECT_EQ((Accumulator{.truncates = true, .promote_every = 128}.text()), "promoted:128");
}

}  // namespace
}  // namespace flashbench
