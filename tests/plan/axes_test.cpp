// The table of axes: what holds for each of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <variant>

#include "plan/axis.h"
#include "plan/random_cases.h"

namespace flashbench {
namespace {

using testing::ElementsAre;
using Json = Axis::Json;

// A value of the axis other than its default.
struct Another {
  const Json otherwise;

  Json operator()(const Axis::Names& names) const {
    return Json(names[0]) == otherwise ? names.at(1) : names[0];
  }
  Json operator()(const Axis::Integers& integers) const {
    return Json(integers.most) == otherwise ? integers.least : integers.most;
  }
  Json operator()(const Axis::Reals& reals) const { return reals.most; }
  Json operator()(const Axis::Objects& objects) const { return objects.example; }
};

Json another(const Axis& axis) {
  return std::visit(Another{axis.get(Case{})}, axis.values);
}

TEST(Axes, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const Axis& axis : axes()) EXPECT_TRUE(names.insert(axis.name).second) << axis.name;
}

TEST(Axes, GiveBackWhatTheyWereSetTo) {
  for (const Axis& axis : axes()) {
    Case c;
    const Json value = another(axis);
    axis.set(c, StrictJson(value));
    EXPECT_EQ(axis.get(c), value) << axis.name;
  }
}

TEST(Axes, RefuseAnythingElse) {
  for (const Axis& axis : axes()) {
    for (const Json& wrong : {Json(true), Json("spam"), Json(Json::array({1}))}) {
      Case c;
      EXPECT_THROW(axis.set(c, StrictJson(wrong)), std::invalid_argument) << axis.name << wrong;
    }
  }
}

// Else two cases would be taken for one, and one of them dropped.
TEST(Axes, ChangeTheKey) {
  for (const Axis& axis : axes()) {
    Case c;
    const Json value = another(axis);
    axis.set(c, StrictJson(value));
    EXPECT_NE(c.key(), Case{}.key()) << axis.name;
  }
}

TEST(Axes, AreMentionedUnlessOptionalAndDefault) {
  for (const Axis& axis : axes()) {
    Case c;
    EXPECT_EQ(axis.is_mentioned(c),
              axis.role == Axis::Role::required || axis.role == Axis::Role::defaulted)
        << axis.name;
    const Json value = another(axis);
    axis.set(c, StrictJson(value));
    EXPECT_EQ(axis.is_mentioned(c), axis.role != Axis::Role::shorthand) << axis.name;
  }
}

// Keys, results and commands of older problems do not mention it.
TEST(Axes, AWindowIsMentionedWhereThereIsOne) {
  Case c;
  EXPECT_EQ(c.key(), "forward/fp32/none/bshd/b1/hq1/hkv1/q1/k1/d64/normal/seed1");
  c.problem.window_left = 0;
  EXPECT_EQ(c.key(), "forward/fp32/none/bshd/b1/hq1/hkv1/q1/k1/d64/normal/seed1/window_left0");
  c.problem.window_right = 5;
  EXPECT_EQ(c.key(),
            "forward/fp32/none/bshd/b1/hq1/hkv1/q1/k1/d64/normal/seed1/window_left0/window_right5");
}

TEST(Axes, AsText) {
  Case c;
  EXPECT_EQ(axis("scale").text(c), "default");
  c.problem.scale = 0.125;
  EXPECT_EQ(axis("scale").text(c), "0.125");
  EXPECT_EQ(axis("mask").text(c), "none");
  c.inputs.seed = 18446744073709551615u;
  EXPECT_EQ(axis("seed").text(c), "18446744073709551615");
  c.problem.q_len = c.problem.kv_len = 1024;
  EXPECT_EQ(axis("seq").text(c), "1024");
}

TEST(Axes, MakeACase) {
  const Case c = make_case({{"total_tokens", 1024},
                            {"hidden", 256},
                            {"seq", 512},
                            {"head_dim", 64},
                            {"placement", "offset"}});
  EXPECT_EQ(c.key(), "forward/fp32/none/bshd/b2/hq4/hkv4/q512/k512/d64/normal/seed1/offset");
  EXPECT_EQ(make_case({{"hidden", 256}, {"kv_heads", 2}, {"head_dim", 64}}).problem.kv_heads, 2);
  EXPECT_EQ(make_case({}), Case{});
}

// A case has one key, however it is said that V is as wide as K.
TEST(Axes, HeadDimVIsLeftOutWhereItIsHeadDim) {
  const Case without = make_case({{"q_heads", 2}, {"head_dim", 128}});
  for (const Json& same : {Json(128), Json(nullptr)}) {
    EXPECT_EQ(make_case({{"q_heads", 2}, {"head_dim", 128}, {"head_dim_v", same}}), without);
  }
  const Case other = make_case({{"q_heads", 2}, {"head_dim", 192}, {"head_dim_v", 128}});
  EXPECT_EQ(other.key(),
            "forward/fp32/none/bshd/b1/hq2/hkv2/q1/k1/d192/normal/seed1/head_dim_v128");
  EXPECT_EQ(other.problem.value_dim(), 128);
}

TEST(Axes, LengthsGiveTheBatchAndTheLongest) {
  const Case c = make_case({{"q_heads", 2},
                            {"head_dim", 64},
                            {"layout", "ragged"},
                            {"lengths", {{"list", {{3, 40}, {16, 5}}}}}});
  EXPECT_EQ(c.problem.batch, 2);
  EXPECT_EQ(c.key(), "forward/fp32/none/ragged/b2/hq2/hkv2/q16/k40/d64/normal/seed1/lengths" +
                         c.problem.lengths->id());
  EXPECT_EQ(axis("lengths").text(c), c.problem.lengths->id());
  EXPECT_EQ(axis("lengths").argument(c), "q3s40_q16s5");
  EXPECT_EQ(axis("lengths").get(c), Json({{"batch_spec", "q3s40_q16s5"}}));
  EXPECT_EQ(axis("lengths").text(Case{}), "default");
}

TEST(Axes, ArgumentsOfObjectsAreReadBack) {
  for (const Axis& axis : axes()) {
    if (!axis.objects()) continue;
    Case c;
    axis.set(c, StrictJson(axis.objects()->example));
    EXPECT_EQ(axis.objects()->from_option(axis.argument(c)), axis.objects()->example);
    EXPECT_EQ(axis.objects()->from_option(axis.objects()->example.dump()), axis.objects()->example);
  }
}

TEST(Axes, SayWhichOneDoesNotFit) {
  try {
    make_case({{"hidden", 100}, {"head_dim", 64}});
    FAIL();
  } catch (const BadAxis& bad) {
    EXPECT_EQ(bad.name, "hidden");
    EXPECT_STREQ(bad.what(), "expected a multiple of head_dim (64), got 100");
  }
}

TEST(Axes, OthersFollowThoseInOrder) {
  std::vector<std::string_view> names;
  for (const Axis* axis : axes_in_order({"seed", "batch"})) names.push_back(axis->name);
  ASSERT_EQ(names.size(), axes().size());
  names.resize(4);
  EXPECT_THAT(names, ElementsAre("seed", "batch", "pass", "dtype"));
}

// A seed that found a bug finds it again: what is drawn for an axis stays when others are added,
// and those follow.
TEST(RandomCases, StayTheSame) {
  EXPECT_EQ(random_case(3, 3000).key(),
            "backward/fp16/causal_top_left/bhsd/b2/hq8/hkv1/q1/k571/d64/outliers/seed3");
  EXPECT_EQ(random_case(18446744073709551615u, 3000).key(),
            "forward/bf16/causal_bottom_right/bshd/b1/hq2/hkv2/q601/k2307/d208/normal/"
            "seed18446744073709551615/window_right1023");
}

TEST(RandomCases, OfBytesHaveEveryFactorAndMask) {
  std::set<std::pair<Descale, Mask>> both;
  std::set<Distribution> distributions;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Case item = random_case_of_bytes(seed, 3000);
    EXPECT_EQ(item.invalid(), std::nullopt) << item.key();
    EXPECT_TRUE(item.problem.is_scaled());
    EXPECT_EQ(item.inputs.seed, seed);
    both.insert({item.problem.descale, item.problem.mask});
    distributions.insert(item.inputs.distribution);
  }
  EXPECT_EQ(both.size(), kDescales.size() * kMasks.size());
  EXPECT_EQ(distributions.size(), 5u);
}

TEST(Cases, OfBytesRefuseValuesThatBytesDoNotHave) {
  Case item;
  item.problem.dtype = Dtype::e4m3;
  item.inputs.distribution = Distribution::inf_key;
  EXPECT_EQ(item.invalid(), "distribution inf_key has no keys of e4m3, which has no infinity");
  item.inputs.distribution = Distribution::one_hot;
  EXPECT_EQ(item.invalid(), std::nullopt);
  item.problem.dtype = Dtype::bf16;
  item.inputs.distribution = Distribution::subnormals;
  EXPECT_EQ(item.invalid(), "distribution subnormals needs dtype or kv_dtype e4m3");
  item.problem.quantize = Quantize::e4m3_head;
  item.inputs.distribution = Distribution::one_hot;
  EXPECT_EQ(item.invalid(),
            "distribution one_hot has exact values, which rounding to bytes would change");
}

TEST(RandomCases, HaveRequestsOfDifferentLengthsPaddedAndRagged) {
  int padded = 0, ragged = 0, without_queries = 0, without_keys = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const Problem p = random_case(seed, 3000).problem;
    EXPECT_EQ(p.invalid(), std::nullopt);
    padded += p.is_padded() ? 1 : 0;
    ragged += p.is_ragged() ? 1 : 0;
    for (int64_t b = 0; p.lengths && b < p.batch; ++b) {
      without_queries += p.q_len_of(b) == 0 ? 1 : 0;
      without_keys += p.kv_len_of(b) == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(padded, 20);
  EXPECT_GT(ragged, 20);
  EXPECT_LT(padded + ragged, 150);
  EXPECT_GT(without_queries, 5);
  EXPECT_GT(without_keys, 5);
}

TEST(RandomCases, HavePagesOfEverySizeAndOrder) {
  std::set<int64_t> sizes;
  std::set<std::pair<KvLayout, PageOrder>> orders;
  int paged = 0, shared = 0, with_lengths = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const Case item = random_case(seed, 3000);
    const Problem& p = item.problem;
    EXPECT_EQ(item.invalid(), std::nullopt);
    if (!p.is_paged()) continue;
    ++paged;
    sizes.insert(*p.page_size);
    orders.insert({p.kv_layout, p.page_order});
    shared += p.shared_prefix ? 1 : 0;
    with_lengths += p.lengths ? 1 : 0;
  }
  EXPECT_GT(paged, 30);
  EXPECT_LT(paged, 80);
  EXPECT_GT(sizes.size(), 8u);
  EXPECT_EQ(orders.size(), 6u);
  EXPECT_GT(shared, 3);
  EXPECT_GT(with_lengths, 3);
}

TEST(RandomCases, HaveWindowsOnEitherSideAndOnBoth) {
  std::set<std::pair<bool, bool>> sides;
  int windowed = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const Problem p = random_case(seed, 3000).problem;
    EXPECT_EQ(p.invalid(), std::nullopt);
    sides.insert({p.window_left.has_value(), p.window_right.has_value()});
    windowed += p.has_window() ? 1 : 0;
  }
  EXPECT_EQ(sides.size(), 4u);
  EXPECT_GT(windowed, 50);
  EXPECT_LT(windowed, 150);
}

}  // namespace
}  // namespace flashbench
