#include "verify/recipe_cost.h"

#include <gtest/gtest.h>

#include <vector>

namespace flashbench {
namespace {

// Mean squares of 25, 9 and 16: 5² = 3² + 4². All rows are alike.
SquaresOfHead head_of(double total, int rows = 40) {
  const double elements = 1000.0 / rows;
  SquaresOfHead head;
  for (int row = 0; row < rows; ++row) {
    add_row(head, {.elements = elements,
                   .total = elements * total,
                   .quant = elements * 9,
                   .kernel = elements * 16,
                   .exact = elements * 1000,
                   .storing = elements * 1e-3});
  }
  return head;
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
}

// As many standard errors as the root of the number of rows, if they are alike; fewer if they are
// not.
TEST(RecipeCost, SquaresThatDoNotAddUpByChance) {
  EXPECT_NEAR(recipe_cost({head_of(27, 36)}).standard_errors, 6, 1e-9);
  EXPECT_EQ(recipe_cost({head_of(27, 24)}).why_not_added(), "");
  EXPECT_NE(recipe_cost({head_of(27, 26)}).why_not_added(), "");
  EXPECT_NE(recipe_cost({head_of(27, 13), head_of(27, 13)}).why_not_added(), "");

  SquaresOfHead one_row_differs = head_of(25);
  add_row(one_row_differs, {.elements = 25, .total = 9000, .quant = 225, .kernel = 400});
  EXPECT_LT(*recipe_cost({one_row_differs}).added(), 0.8);
  EXPECT_EQ(recipe_cost({one_row_differs}).why_not_added(), "");
}

}  // namespace
}  // namespace flashbench
