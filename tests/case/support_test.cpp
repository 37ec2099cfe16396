#include "case/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/case/fake_provider.h"

namespace flashbench {
namespace {

using testing::Optional;

// An optional axis of problems: the batch, by another name.
Axis made_up_axis(std::string_view name) {
  return {.name = name,
          .title = "",
          .role = Axis::Role::optional,
          .values = Axis::Integers{1, 9},
          .of_problem = true,
          .get = [](const Case& c) { return Axis::Json(c.problem.batch); },
          .set = nullptr};
}

class Support : public testing::Test {
 protected:
  std::optional<std::string> why() const { return why_unsupported(provider_, item_, {}, table_); }

  std::vector<Axis> table_{made_up_axis("spam"), made_up_axis("eggs")};
  FakeProvider provider_{nullptr};
  Case item_;
};

TEST_F(Support, AProviderIsNotOfferedWhatItDoesNotKnow) {
  item_.problem.batch = 2;
  EXPECT_THAT(why(), Optional(std::string("it does not support spam and eggs")));
  provider_.axes = {"eggs"};
  EXPECT_THAT(why(), Optional(std::string("it does not support spam")));
  provider_.axes = {"eggs", "spam"};
  EXPECT_EQ(why(), std::nullopt);
}

TEST_F(Support, DefaultsAreOfferedToAll) {
  EXPECT_EQ(why(), std::nullopt);
}

// A provider that never heard of bytes would take them for something else.
TEST_F(Support, ADtypeIsOfferedToThoseThatNameIt) {
  item_.problem.dtype = Dtype::e4m3;
  EXPECT_THAT(why(), Optional(std::string("it does not take dtype e4m3")));
  item_.problem.dtype = Dtype::fp16;
  EXPECT_EQ(why(), std::nullopt);
}

// It could not be asked whether it supports a problem that it does not understand.
TEST_F(Support, AxesComeFirst) {
  provider_.refusal = "the provider's";
  provider_.placement_refusal = "the placement's";
  item_.placement = Placement::offset;
  EXPECT_THAT(why(), Optional(std::string("the provider's")));
  item_.problem.batch = 2;
  EXPECT_THAT(why(), Optional(std::string("it does not support spam and eggs")));
  provider_.axes = {"eggs", "spam"};
  provider_.refusal.reset();
  EXPECT_THAT(why(), Optional(std::string("the placement's")));
}

TEST(SupportTable, EveryOptionalAxisIsNamed) {
  std::vector<std::string_view> named = kEveryOptionalAxis;
  named.insert(named.end(), {"gpus", "split", "descale", "quantize", "kv_dtype"});
  std::vector<std::string_view> names;
  for (const Axis& axis : axes()) {
    if (axis.role == Axis::Role::optional && axis.of_problem) names.push_back(axis.name);
  }
  EXPECT_EQ(named, names);
}

// Of those on a CPU: our own kernels and standard attention.
TEST(SupportTable, WhoTakesACacheOfBytes) {
  Case item;
  item.problem.dtype = Dtype::bf16;
  item.problem.kv_dtype = Dtype::e4m3;
  for (const auto& provider : all_providers()) {
    if (provider->device_kind() != DeviceKind::cpu) continue;
    const auto why = why_unsupported(*provider, item, {});
    if (provider->name() == "naive" || provider->name() == "tiled") {
      EXPECT_EQ(why, std::nullopt) << provider->name();
    } else {
      EXPECT_EQ(why, "it does not support kv_dtype") << provider->name();
    }
  }
}

// Of those on a CPU: all but the emulations refuse bytes and recipes; that with O in e4m3 refuses
// recipes, whose O is bf16.
TEST(SupportTable, WhoTakesBytes) {
  Case of_bytes, with_recipe;
  of_bytes.problem.dtype = Dtype::e4m3;
  with_recipe.problem.dtype = Dtype::bf16;
  with_recipe.problem.quantize = Quantize::e4m3_head;
  for (const auto& provider : all_providers()) {
    if (provider->device_kind() != DeviceKind::cpu) continue;
    const bool emulates = provider->name().starts_with("emulated");
    EXPECT_EQ(why_unsupported(*provider, of_bytes, {}) == std::nullopt, emulates)
        << provider->name();
    EXPECT_EQ(why_unsupported(*provider, with_recipe, {}) == std::nullopt,
              emulates && provider->name() != "emulated:o_e4m3")
        << provider->name();
  }
}

TEST(SupportTable, ProvidersNameOptionalAxesOfProblems) {
  for (const auto& provider : all_providers()) {
    for (const std::string_view name : provider->optional_axes()) {
      EXPECT_EQ(axis(name).role, Axis::Role::optional) << provider->name();
      EXPECT_TRUE(axis(name).of_problem) << provider->name();
    }
  }
}

}  // namespace
}  // namespace flashbench
