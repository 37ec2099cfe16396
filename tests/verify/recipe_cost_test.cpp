#include "verify/recipe_cost.h"

#include <gtest/gtest.h>

#include <vector>

namespace flashbench {
namespace {

// Mean squares of 25, 9 and 16: 5² = 3² + 4².
SquaresOfHead head_of(double total) {
  return {.elements = 1000,
          .total = 1000 * total,
          .quant = 9000,
          .kernel = 16000,
          .exact = 1e6,
          .storing = 1};
}

TEST(RecipeCost, RootMeanSquaresOverAllHeads) {
  const RecipeCost cost = recipe_cost({head_of(20), head_of(30)});
  EXPECT_DOUBLE_EQ(cost.total.value, 5);
  EXPECT_DOUBLE_EQ(cost.quant.value, 3);
  EXPECT_DOUBLE_EQ(cost.kernel.value, 4);
  EXPECT_DOUBLE_EQ(*cost.added(), 1);
  EXPECT_EQ(cost.why_not_added(), "");
  EXPECT_FALSE(cost.total.low || cost.total.high);  // of two heads
}

// Mean squares 22, 24, 26, 28 of four heads: mean 25, standard error 1.291, t = 3.182 at 3 degrees
// of freedom.
TEST(RecipeCost, IntervalOverTheHeads) {
  const RecipeCost cost = recipe_cost({head_of(22), head_of(24), head_of(26), head_of(28)});
  EXPECT_NEAR(*cost.total.low * *cost.total.low, 25 - 3.182 * 1.291, 0.05);
  EXPECT_NEAR(*cost.total.high * *cost.total.high, 25 + 3.182 * 1.291, 0.05);
  EXPECT_DOUBLE_EQ(*cost.quant.low, 3);
}

TEST(RecipeCost, SquaresThatDoNotAddUp) {
  EXPECT_EQ(recipe_cost({head_of(26)}).why_not_added(), "");
  EXPECT_NE(recipe_cost({head_of(27)}).why_not_added().find("add up to 0.926"), std::string::npos);
  EXPECT_NE(recipe_cost({head_of(23)}).why_not_added(), "");
  SquaresOfHead stored = head_of(40);
  stored.storing = 1000;  // more than an eighth of the recipe's error
  EXPECT_EQ(recipe_cost({stored}).added(), std::nullopt);
  SquaresOfHead few = head_of(40);
  few.elements = 900;
  EXPECT_EQ(recipe_cost({few}).added(), std::nullopt);
}

}  // namespace
}  // namespace flashbench
