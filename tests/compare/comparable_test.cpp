#include "compare/comparable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/error.h"
#include "compare/compare.h"
#include "sample_sweep.h"

namespace flashbench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

// The error of a comparison in which the new result has another value at `pointer`.
struct Other {
  std::string key, pointer;
  Json value;
};

SweepResult with(const Other& other) {
  SweepResult result = nine_rows({}, 2);
  Json& json = other.pointer.starts_with("/meta") ? result.meta : result.devices[0];
  const std::string place = other.pointer.substr(other.pointer.find('/', 1));
  json[Json::json_pointer(place)] = other.value;
  return result;
}

std::string message(const SweepResult& base, const SweepResult& now,
                    std::vector<std::string> allowed = {}) {
  CompareOptions options;
  options.allow_different = std::move(allowed);
  try {
    compare(base, now, options, "base.json");
  } catch (const BaselineError& error) {
    return error.what();
  }
  return "";
}

TEST(Comparable, EveryConditionIsCheckedAndCanBeAllowed) {
  const std::vector<Other> others{
      {"device_kind", "/device/kind", "cuda"},
      {"device", "/device/name", "Another CPU"},
      {"instructions", "/device/instructions", "AVX2"},
      {"threads", "/device/threads", 4},
      {"blas", "/device/libraries/openblas", "OpenBLAS 0.3.30"},
      {"blas_core", "/device/libraries/openblas_core", "Haswell"},
      {"build_type", "/meta/build_type", "Debug"},
      {"sanitizers", "/meta/sanitizers", "address"},
      {"compiler", "/meta/compiler", "Clang 14"},
      {"flop_rule", "/meta/flop_rule", "other"},
      {"byte_rule", "/meta/byte_rule", "other"},
      {"inputs", "/meta/inputs", "other"},
  };
  const SweepResult base = nine_rows({}, 1);
  std::vector<std::string> keys;
  for (const Other& other : others) {
    const std::string value = other.value.is_string() ? other.value.get<std::string>() : "4";
    EXPECT_THAT(message(base, with(other)),
                AllOf(HasSubstr("base.json: not comparable"), HasSubstr("\n  " + other.key + ": "),
                      HasSubstr("\"" + value + "\" now")));
    EXPECT_EQ(message(base, with(other), {other.key}), "");
    keys.push_back(other.key);
  }
  keys.push_back("cache");
  EXPECT_EQ(keys, condition_keys());
}

TEST(Comparable, TheOrderOfInputFilesDoesNotMatter) {
  SweepResult base = nine_rows({}, 1), now = nine_rows({}, 2);
  base.meta["inputs"] = {{"q.npy", "1"}, {"k.npy", "2"}};
  now.meta["inputs"] = {{"k.npy", "2"}, {"q.npy", "1"}};
  EXPECT_EQ(message(base, now), "");
  now.meta["inputs"]["q.npy"] = "3";
  EXPECT_THAT(message(base, now), HasSubstr("inputs: "));
}

TEST(Comparable, TheCacheStateIsThatOfTheMeasurements) {
  SweepResult cold = nine_rows({}, 2);
  for (Record& record : cold.records) record.measurement->cache = CacheState::cold;
  const SweepResult base = nine_rows({}, 1);
  EXPECT_THAT(message(base, cold), HasSubstr("cache: \"warm\" in the baseline, \"cold\" now"));
  EXPECT_EQ(message(base, cold, {"cache"}), "");
  cold.records[0].measurement->cache = CacheState::warm;
  EXPECT_THAT(message(base, cold), HasSubstr("\"cold and warm\" now"));
  for (Record& record : cold.records) record.measurement.reset();
  EXPECT_EQ(message(base, cold), "");  // nothing was timed
}

TEST(Comparable, AllDifferencesAreNamedAtOnceAndAllowedOnesShown) {
  SweepResult now = nine_rows({}, 2);
  now.meta["compiler"] = "Clang 14";
  now.meta.erase("build_type");
  EXPECT_THAT(message(nine_rows({}, 1), now),
              AllOf(HasSubstr("compiler"), HasSubstr("build_type: \"Release\" in the baseline, "
                                                     "nothing now")));
  EXPECT_THAT(message(nine_rows({}, 1), now, {"compiler"}),
              AllOf(Not(HasSubstr("compiler")), HasSubstr("build_type")));
  CompareOptions options;
  options.allow_different = {"build_type", "compiler"};
  const auto differences = compare(nine_rows({}, 1), now, options).differences;
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[1].key, "compiler");
  EXPECT_EQ(differences[1].base, "GNU 12.2.0");
  EXPECT_EQ(differences[1].now, "Clang 14");
}

TEST(Comparable, AnotherVersionOrTimeIsWhatIsCompared) {
  SweepResult now = nine_rows({}, 2);
  now.meta["version"] = "2.0.0";
  now.meta["git_commit"] = "def";
  now.meta["started"] = "2027-01-01T00:00:00Z";
  EXPECT_EQ(message(nine_rows({}, 1), now), "");
}

TEST(Comparable, UnknownKeysAreBadInput) {
  try {
    message(nine_rows({}, 1), nine_rows({}, 2), {"compilr"});
    FAIL();
  } catch (const BadInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"compiler\"?"));
  }
}

TEST(Comparable, ConditionsAreKnownBeforeTheSweep) {
  const SweepResult result = nine_rows({}, 1);
  const auto before = conditions(result.meta, result.devices, CacheState::warm);
  EXPECT_TRUE(differences(conditions(result), before).empty());
  EXPECT_THAT(
      differences(conditions(result), conditions(result.meta, result.devices, CacheState::cold)),
      ElementsAre(testing::Field(&Difference::key, "cache")));
}

}  // namespace
}  // namespace flashbench
