#include "attention/problem.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flashbench {
namespace {

int64_t counted_pairs(const Problem& p) {
  int64_t pairs = 0;
  for (int64_t query = 0; query < p.q_len; ++query) pairs += p.visible_keys(query);
  return pairs;
}

TEST(Problem, UnmaskedPairsAreTheSumOfVisibleKeys) {
  for (Mask mask : kMasks) {
    for (int64_t q_len = 1; q_len <= 9; ++q_len) {
      for (int64_t kv_len = 1; kv_len <= 9; ++kv_len) {
        const Problem p{.mask = mask, .q_len = q_len, .kv_len = kv_len};
        EXPECT_EQ(p.unmasked_pairs(), counted_pairs(p)) << p.id();
      }
    }
  }
}

TEST(Problem, CausalAlignments) {
  const Problem top{.mask = Mask::causal_top_left, .q_len = 2, .kv_len = 5};
  EXPECT_EQ(top.visible_keys(0), 1);
  EXPECT_EQ(top.visible_keys(1), 2);
  const Problem bottom{.mask = Mask::causal_bottom_right, .q_len = 2, .kv_len = 5};
  EXPECT_EQ(bottom.visible_keys(0), 4);
  EXPECT_EQ(bottom.visible_keys(1), 5);
  const Problem empty_rows{.mask = Mask::causal_bottom_right, .q_len = 5, .kv_len = 2};
  EXPECT_EQ(empty_rows.visible_keys(2), 0);
  EXPECT_EQ(empty_rows.visible_keys(3), 1);
  const Problem more_queries{.mask = Mask::causal_top_left, .q_len = 5, .kv_len = 2};
  EXPECT_EQ(more_queries.visible_keys(4), 2);
}

// Other tools count 512, 1, 1023.5 and 1024 pairs here; 1024 is correct.
TEST(Problem, OneQueryAgainstManyKeysSeesThemAll) {
  const Problem p{.mask = Mask::causal_bottom_right, .q_len = 1, .kv_len = 1024, .head_dim = 128};
  EXPECT_EQ(p.unmasked_pairs(), 1024);
  EXPECT_DOUBLE_EQ(p.flops(), 4.0 * 1024 * 128);
  EXPECT_DOUBLE_EQ(p.flops_convention(), 2.0 * 1024 * 128);
}

TEST(Problem, FlopsAndBytes) {
  Problem p{.dtype = Dtype::bf16,
            .batch = 2,
            .q_heads = 8,
            .kv_heads = 2,
            .q_len = 512,
            .kv_len = 256,
            .head_dim = 64};
  EXPECT_DOUBLE_EQ(p.flops(), 4.0 * 2 * 8 * 512 * 256 * 64);
  EXPECT_DOUBLE_EQ(p.flops(), p.flops_convention());
  const int64_t query = 2 * 8 * 512 * 64, key = 2 * 2 * 256 * 64, rows = 2 * 8 * 512;
  EXPECT_EQ(p.compulsory_bytes(), 2 * (2 * query + 2 * key) + 4 * rows);
  p.pass = Pass::backward;
  EXPECT_DOUBLE_EQ(p.flops(), 10.0 * 2 * 8 * 512 * 256 * 64);
  EXPECT_EQ(p.compulsory_bytes(), 2 * (4 * query + 4 * key) + 4 * rows);
}

TEST(Problem, ScaleDefaultsToTheSquareRoot) {
  Problem p{.head_dim = 64};
  EXPECT_DOUBLE_EQ(p.softmax_scale(), 0.125);
  p.scale = 0.5;
  EXPECT_DOUBLE_EQ(p.softmax_scale(), 0.5);
}

TEST(Problem, InvalidShapesGetASentence) {
  EXPECT_FALSE(Problem{}.invalid());
  EXPECT_TRUE((Problem{.batch = 0}).invalid());
  EXPECT_TRUE((Problem{.q_heads = 3, .kv_heads = 2}).invalid());
  EXPECT_TRUE((Problem{.kv_len = 0}).invalid());
  for (int64_t head_dim : {0, 4, 12, 264}) {
    EXPECT_TRUE((Problem{.head_dim = head_dim}).invalid()) << head_dim;
  }
  EXPECT_TRUE((Problem{.scale = std::nan("")}).invalid());
}

TEST(Problem, IdNamesEveryAxis) {
  Problem p{.batch = 2, .q_heads = 8, .kv_heads = 4, .q_len = 10, .kv_len = 20, .head_dim = 32};
  EXPECT_EQ(p.id(), "forward/fp32/none/bshd/b2/hq8/hkv4/q10/k20/d32");
  p.scale = 0.5;
  EXPECT_EQ(p.id(), "forward/fp32/none/bshd/b2/hq8/hkv4/q10/k20/d32/scale0.5");
}

template <typename Enum, size_t N>
void expect_names_parse(const std::array<Enum, N>& values) {
  for (Enum value : values) EXPECT_EQ(parse<Enum>(name(value)), value);
  EXPECT_FALSE(parse<Enum>("nonsense"));
}

TEST(Problem, NamesParseBack) {
  expect_names_parse(kPasses);
  expect_names_parse(kDtypes);
  expect_names_parse(kMasks);
  expect_names_parse(kLayouts);
  expect_names_parse(kDistributions);
}

}  // namespace
}  // namespace flashbench
