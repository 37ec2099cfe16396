#include "plan/json_differences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> found(const std::string& first, const std::string& second) {
  std::vector<std::string> texts;
  for (const JsonDifference& difference : json_differences(nlohmann::ordered_json::parse(first),
                                                           nlohmann::ordered_json::parse(second))) {
    texts.push_back(difference.pointer + ": " + difference.first + ", " + difference.second);
  }
  return texts;
}

TEST(JsonDifferences, NamesEachValueThatDiffersAndThoseOfOneSide) {
  EXPECT_THAT(found(R"({"a": 1, "b": {"c": [1, 2]}, "old": "x"})",
                    R"({"new": null, "b": {"c": [1, 3]}, "a": 1})"),
              ElementsAre("/new: nothing, null", "/b/c/1: 2, 3", "/old: \"x\", nothing"));
}

TEST(JsonDifferences, TheOrderOfKeysIsNone) {
  EXPECT_THAT(found(R"({"a": 1, "b": 2})", R"({"b": 2, "a": 1})"), IsEmpty());
}

}  // namespace
}  // namespace flashbench
