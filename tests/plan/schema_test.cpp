// Checks that the schema agrees with the code that relies on it.
#include "plan/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <variant>

#include "plan/axis.h"

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
}

// ---- the axes of a block

// What the schema says of one value of an axis.
struct ItemSchema {
  Json operator()(const Axis::Names& names) const { return {{"type", "string"}, {"enum", names}}; }
  Json operator()(const Axis::Integers& integers) const {
    constexpr uint64_t kMostInEveryReader = 9007199254740991;  // 2^53 - 1
    Json json{{"type", "integer"},
              {"minimum", integers.least},
              {"maximum", std::min(integers.most, kMostInEveryReader)}};
    if (integers.step > 1) json["multipleOf"] = integers.step;
    return json;
  }
  Json operator()(const Axis::Reals& reals) const {
    return {{"type", "number"}, {"minimum", reals.least}, {"maximum", reals.most}};
  }
  Json operator()(const Axis::Objects& objects) const { return objects.schema; }
};

// What it says of an axis, apart from `description` and `examples`.
Json schema_of(const Axis& axis) {
  Json json{{"title", axis.title}};
  const Json otherwise = axis.get(Case{});
  const bool has_default = axis.role == Axis::Role::defaulted || axis.role == Axis::Role::optional;
  if (has_default && !otherwise.is_null()) json["default"] = otherwise;
  const Json item = std::visit(ItemSchema(), axis.values);
  json["anyOf"] = {item,
                   {{"type", "array"},
                    {"minItems", 1},
                    {"maxItems", axis.names() ? 16 : 1000},
                    {"items", item}}};
  return json;
}

Json without_references(const Json& node) {
  if (node.contains("$ref")) {
    return schema().at(Json::json_pointer(node.at("$ref").get<std::string>().substr(1)));
  }
  return node;
}

// Compared as sets of members: their order is free.
TEST(Schema, AxesAreThoseOfTheTable) {
  const Json& block = schema().at("definitions").at("block").at("properties");
  std::set<std::string> known{"model", "q", "k", "v", "d_o"};  // what a block has beside its axes
  for (const Axis& axis : axes()) {
    known.emplace(axis.name);
    ASSERT_TRUE(block.contains(axis.name))
        << "configs/sweep.schema.json lacks \"" << axis.name << "\": " << schema_of(axis).dump(2);
    Json found = block.at(axis.name);
    found.erase("description");
    found.erase("examples");
    Json& alternatives = found.at("anyOf");
    alternatives[1].at("items") = without_references(alternatives[1].at("items"));
    alternatives[0] = without_references(alternatives[0]);
    EXPECT_EQ(nlohmann::json(found), nlohmann::json(schema_of(axis))) << axis.name;
  }
  for (const auto& member : block.items()) {
    EXPECT_TRUE(known.contains(member.key())) << member.key() << " is no axis of the table";
  }
}

TEST(Schema, HostileDocumentsEndInIssues) {
  Json document = {{"schema_version", 1}, {"name", "x"}, {"cases", Json::array()}};
  document["providers"] = Json::array();
  for (int i = 0; i < 50'000; ++i) document["providers"].push_back(0);
  for (int i = 0; i < 2'000; ++i) document["cases"].push_back(Json::object());
  const auto issues = schema_issues(document);
  EXPECT_EQ(issues.size(), 50'000u + 1 + 2'000u + 1);

  document = {{"schema_version", 1}, {"name", std::string(2000, 'a')}};
  document["providers"] = {std::string(2000, 'a')};  // a recursive regex matches it
  EXPECT_EQ(schema_issues(document).size(), 3u);
}

// Collects every place in a document.
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
