// The schema agrees with the code that relies on it.
#include "plan/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace flashbench {
namespace {

using Json = nlohmann::ordered_json;

const Json& schema() {
  static const Json json = Json::parse(sweep_schema_text());
  return json;
}

// Calls `visit` with every schema in the schema.
void walk(const Json& node, const std::function<void(const Json&)>& visit) {
  visit(node);
  for (const char* group : {"properties", "definitions"}) {
    if (!node.contains(group)) continue;
    for (const Json& child : node.at(group)) walk(child, visit);
  }
  if (node.contains("items")) walk(node.at("items"), visit);
  if (node.contains("anyOf")) {
    for (const Json& child : node.at("anyOf")) walk(child, visit);
  }
}

TEST(Schema, UsesOnlyKeywordsThatTheMessagesKnow) {
  const std::set<std::string> known{"$schema",
                                    "title",
                                    "description",
                                    "default",
                                    "examples",
                                    "definitions",
                                    "$ref",
                                    "type",
                                    "const",
                                    "enum",
                                    "minimum",
                                    "maximum",
                                    "multipleOf",
                                    "pattern",
                                    "required",
                                    "minItems",
                                    "items",
                                    "maxItems",
                                    "anyOf",
                                    "minLength",
                                    "maxLength",
                                    "properties",
                                    "additionalProperties"};
  walk(schema(), [&](const Json& node) {
    for (const auto& member : node.items()) EXPECT_TRUE(known.count(member.key())) << member.key();
    const std::string type = node.value("type", "");
    if (type == "object") {
      EXPECT_EQ(node.at("additionalProperties"), false) << node;
    }
    if (type == "array") {
      EXPECT_TRUE(node.contains("minItems") && node.contains("maxItems")) << node;
    }
    if (type == "integer" || type == "number") {
      EXPECT_TRUE(node.contains("minimum") && node.contains("maximum")) << node;
    }
    if (node.contains("pattern")) {
      EXPECT_TRUE(node.contains("examples")) << node;
    }
    if (node.contains("anyOf")) {
      ASSERT_EQ(node.at("anyOf").size(), 2u) << node;
      EXPECT_EQ(node.at("anyOf")[1].at("items"), node.at("anyOf")[0]) << node;
    }
  });
}

TEST(Schema, KeysAreExplainedToEditors) {
  for (const Json* node : {&schema(), &schema().at("definitions").at("block")}) {
    for (const auto& member : node->at("properties").items()) {
      EXPECT_TRUE(member.value().contains("title")) << member.key();
    }
  }
}

TEST(Schema, DefaultsAreThoseOfTheCode) {
  const SweepConfig config;
  const Json& top = schema().at("properties");
  EXPECT_EQ(top.at("device").at("default"), config.device);
  EXPECT_EQ(top.at("threads").at("default"), config.threads);
  EXPECT_EQ(top.at("verify").at("properties").at("fp64_flops").at("default"),
            config.verify.fp64_flops);
  const Json& measure = top.at("measure").at("properties");
  EXPECT_EQ(measure.at("cache").at("default"), name(config.measure.cache));
  EXPECT_EQ(measure.at("warmup_runs").at("default"), config.measure.warmup_runs);
  EXPECT_EQ(measure.at("warmup_seconds").at("default"), config.measure.warmup_seconds);
  EXPECT_EQ(measure.at("min_samples").at("default"), config.measure.min_samples);
  EXPECT_EQ(measure.at("max_samples").at("default"), config.measure.max_samples);
  EXPECT_EQ(measure.at("target_ci_width").at("default"), config.measure.target_ci_width);
  EXPECT_EQ(measure.at("max_seconds").at("default"), config.measure.max_seconds);

  const Json& block = schema().at("definitions").at("block").at("properties");
  int checked = 0;
  for (const auto& [axis, value] : axes(Case{})) {
    if (!block.at(axis).contains("default")) continue;
    const Json& given = block.at(axis).at("default");
    EXPECT_EQ(given.is_string() ? given.get<std::string>() : given.dump(), value) << axis;
    ++checked;
  }
  EXPECT_EQ(checked, 8);
}

template <typename Enum, size_t N>
void expect_names(const char* definition, const std::array<Enum, N>& values) {
  Json names = Json::array();
  for (const Enum value : values) names.push_back(name(value));
  EXPECT_EQ(schema().at("definitions").at(definition).at("enum"), names);
}

TEST(Schema, NamesAreThoseOfTheCode) {
  expect_names("pass", kPasses);
  expect_names("dtype", kDtypes);
  expect_names("mask", kMasks);
  expect_names("layout", kLayouts);
  expect_names("distribution", kDistributions);
  expect_names("placement", kPlacements);
  const Json& head_dim = schema().at("definitions").at("head_dim");
  EXPECT_EQ(head_dim.at("maximum"), kMaxHeadDim);
  EXPECT_EQ(head_dim.at("multipleOf"), kHeadDimStep);
}

TEST(Schema, HostileDocumentsEndInIssues) {
  Json document = {{"schema_version", 1}, {"name", "x"}, {"cases", Json::array()}};
  document["providers"] = Json::array();
  for (int i = 0; i < 50'000; ++i) document["providers"].push_back(0);
  for (int i = 0; i < 2'000; ++i) document["cases"].push_back(Json::object());
  const auto issues = schema_issues(document);
  EXPECT_EQ(issues.size(), 50'000u + 1 + 2'000u + 1);

  document = {{"schema_version", 1}, {"name", std::string(2000, 'a')}};
  document["providers"] = {std::string(2000, 'a')};  // matched by a recursive regex
  EXPECT_EQ(schema_issues(document).size(), 3u);
}

// Every place in a document.
void places(const Json& node, const Json::json_pointer& here,
            std::vector<Json::json_pointer>& found) {
  found.push_back(here);
  if (node.is_object()) {
    for (const auto& member : node.items()) places(member.value(), here / member.key(), found);
  } else if (node.is_array()) {
    for (size_t i = 0; i < node.size(); ++i) places(node[i], here / i, found);
  }
}

TEST(Schema, AnyValueAnywhereIsAcceptedOrExplained) {
  const Json valid = Json::parse(R"({
    "$schema": "s", "schema_version": 1, "name": "n", "description": "", "device": "cpu",
    "threads": 1, "providers": ["naive", "tiled"],
    "measure": {"cache": "cold", "min_samples": 3, "max_seconds": 1.5}, "verify": {"fp64_flops": 1},
    "cases": [{"pass": "forward", "dtype": ["fp32"], "mask": "none", "head_dim": [64, 128],
               "q_heads": 2, "seq": 8, "distribution": "files", "q": "a", "k": "b", "v": "c"}]})");
  const std::vector<Json> values{nullptr,
                                 true,
                                 0,
                                 -1,
                                 1.5,
                                 1e300,
                                 18446744073709551615u,
                                 "",
                                 "forward",
                                 Json::array(),
                                 Json::object(),
                                 {1, "x", nullptr},
                                 {{{"[0]", 1}}},
                                 {{"q", {{"/", 1}}}}};
  std::vector<Json::json_pointer> pointers;
  places(valid, Json::json_pointer(), pointers);
  int refused = 0;
  for (const auto& pointer : pointers) {
    for (const Json& value : values) {
      Json document = valid;
      document[pointer] = value;
      try {
        parse_config(document.dump(), "test", {});
      } catch (const ConfigError& error) {
        ++refused;
        for (const ConfigIssue& issue : error.issues()) {
          EXPECT_TRUE(issue.pointer.empty() || document.contains(Json::json_pointer(issue.pointer)))
              << issue.pointer;
        }
      }
    }
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace flashbench
