#include "plan/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "plan/json_text.h"
#include "plan/nearest.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;
using Path = std::vector<std::string>;

// The validator says where the document fails; its sentences name neither what was expected nor
// what was found. The functions below read both off the schema. They know the keywords that the
// schema uses (tests/plan/schema_test.cpp holds it to them).

const Json& resolved(const Json& schema, const Json& node) {
  if (!node.contains("$ref")) return node;
  return schema.at(Json::json_pointer(node.at("$ref").get<std::string>().substr(1)));  // "#/..."
}

// The alternative that is meant for this value: an axis is one value, or an array of them.
const Json& alternative(const Json& schema, const Json& node, const Json& value) {
  const Json& target = resolved(schema, node);
  if (!target.contains("anyOf")) return target;
  for (const Json& option : target.at("anyOf")) {
    const Json& candidate = resolved(schema, option);
    if ((candidate.value("type", "") == "array") == value.is_array()) return candidate;
  }
  return target;
}

std::string expected_number(const Json& node, std::string_view kind) {
  const std::string what = node.contains("multipleOf")
                               ? fmt::format("a multiple of {}", shown(node.at("multipleOf")))
                               : std::string(kind);
  return fmt::format("{} from {} to {}", what, shown(node.at("minimum")),
                     shown(node.at("maximum")));
}

std::string quoted_list(const Json& values) {
  std::vector<std::string> texts;
  for (const Json& value : values) texts.push_back(shown(value));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string expected_text(const Json& node) {
  if (node.contains("enum")) return fmt::format("one of {}", quoted_list(node.at("enum")));
  std::string what = "text";
  if (node.contains("pattern")) what += fmt::format(" like {}", quoted_list(node.at("examples")));
  if (node.contains("minLength")) what += " that is not empty";
  if (node.contains("maxLength")) {
    what += fmt::format(", of at most {} characters", shown(node.at("maxLength")));
  }
  return what;
}

// What the schema wants at a node, as a noun phrase.
std::string expected(const Json& schema, const Json& node) {
  const Json& target = resolved(schema, node);
  if (target.contains("const")) return shown(target.at("const"));
  if (target.contains("anyOf")) {
    return expected(schema, target.at("anyOf").front()) + ", or an array of these";
  }
  const std::string type = target.at("type");
  if (type == "integer") return expected_number(target, "an integer");
  if (type == "number") return expected_number(target, "a number");
  if (type == "string") return expected_text(target);
  if (type == "array") {
    return fmt::format("an array of {} to {} items", shown(target.at("minItems")),
                       shown(target.at("maxItems")));
  }
  return "an object";
}

std::vector<std::string> known_keys(const Json& node) {
  std::vector<std::string> keys;
  for (const auto& member : node.at("properties").items()) keys.push_back(member.key());
  return keys;
}

// The keys of the objects that are values of a node's keys, or in arrays that are: each with the
// pointer to it, of the first in an array.
std::map<std::string, std::string> keys_below(const Json& schema, const Json& node,
                                              const std::string& pointer) {
  std::map<std::string, std::string> below;
  for (const auto& member : node.at("properties").items()) {
    const Json* part = &resolved(schema, member.value());
    std::string place = pointer_child(pointer, member.key());
    if (part->value("type", "") == "array") {
      part = &resolved(schema, part->at("items"));
      place = pointer_child(place, "0");
    }
    if (!part->contains("properties")) continue;
    for (const std::string& key : known_keys(*part)) below[key] = pointer_child(place, key);
  }
  return below;
}

// "Did you mean" for a key that the node does not know: one of its own, or else one below it, since
// people look for axes outside the cases.
std::string meant_key(const Json& schema, const Json& node, const std::string& key,
                      const std::string& pointer) {
  std::string own = did_you_mean(key, known_keys(node));
  if (!own.empty()) return own;
  const std::map<std::string, std::string> below = keys_below(schema, node, pointer);
  std::vector<std::string> known, places;
  for (const auto& [name, place] : below) known.push_back(name);
  for (const std::string& name : nearest(key, known)) places.push_back(below.at(name));
  if (places.empty()) return "";
  return fmt::format("; did you mean \"{}\"?", fmt::join(places, "\" or \""));
}

// Keys that no one knows, and keys that lack; a lacking key that an unknown one is a misspelling of
// is not named twice.
void explain_keys(const Json& schema, const Json& node, const Json& value,
                  const std::string& pointer, std::vector<ConfigIssue>& issues) {
  const std::vector<std::string> known = known_keys(node);
  std::set<std::string> misspelt;
  for (const auto& member : value.items()) {
    const std::string& key = member.key();
    if (node.at("properties").contains(key)) continue;
    for (const std::string& name : nearest(key, known)) misspelt.insert(name);
    issues.push_back({pointer_child(pointer, key),
                      fmt::format("unknown key{}", meant_key(schema, node, key, pointer))});
  }
  if (!node.contains("required")) return;
  for (const std::string key : node.at("required")) {
    if (value.contains(key) || misspelt.count(key) != 0) continue;
    issues.push_back({pointer, fmt::format("lacks the key \"{}\": {}", key,
                                           expected(schema, node.at("properties").at(key)))});
  }
}

// What is wrong with the value itself; nothing if only its parts are wrong.
void explain_value(const Json& schema, const Json& node, const Json& value,
                   const std::string& pointer, std::vector<ConfigIssue>& issues) {
  const Json& meant = alternative(schema, node, value);
  const std::string type = meant.value("type", "");
  if (type == "object" && value.is_object()) {
    explain_keys(schema, meant, value, pointer, issues);
    return;
  }
  if (type == "array" && value.is_array() && value.size() >= meant.at("minItems") &&
      value.size() <= meant.at("maxItems")) {
    return;
  }
  std::string message = fmt::format("expected {}, got {}",
                                    expected(schema, type == "array" ? meant : node), shown(value));
  if (meant.contains("enum") && value.is_string()) {
    message += did_you_mean(value.get<std::string>(), meant.at("enum"));
  }
  issues.push_back({pointer, std::move(message)});
}

// Goes down from the root to the value that failed.
void explain(const Json& schema, const Json& document, const Path& path,
             std::vector<ConfigIssue>& issues) {
  const Json* node = &schema;
  const Json* value = &document;
  std::string pointer;
  for (const std::string& token : path) {
    const Json& parent = alternative(schema, *node, *value);
    node = value->is_array() ? &parent.at("items") : &parent.at("properties").at(token);
    value = value->is_array() ? &value->at(std::stoul(token)) : &value->at(token);
    pointer = pointer_child(pointer, token);
  }
  explain_value(schema, *node, *value, pointer, issues);
}

// Where the validator found something, in its order, each place once. It writes a place as
// "<root>", "[cases]", "[0]", ...
std::vector<Path> failing_paths(const valijson::ValidationResults& results) {
  std::vector<Path> paths;
  std::set<Path> seen;
  for (const auto& error : results) {
    Path path;
    for (size_t i = 1; i < error.context.size(); ++i) {
      path.push_back(error.context[i].substr(1, error.context[i].size() - 2));
    }
    if (seen.insert(path).second) paths.push_back(std::move(path));
  }
  return paths;
}

}  // namespace

std::vector<ConfigIssue> schema_issues(const Json& document) {
  using Adapter = valijson::adapters::NlohmannJsonAdapter;
  const Json schema = Json::parse(sweep_schema_text());

  const nlohmann::json plain_schema(schema), plain_document(document);
  valijson::Schema compiled;
  valijson::SchemaParser().populateSchema(Adapter(plain_schema), compiled);
  valijson::ValidationResults results;
  if (valijson::Validator().validate(compiled, Adapter(plain_document), &results)) return {};

  std::vector<ConfigIssue> issues;
  for (const Path& path : failing_paths(results)) explain(schema, document, path, issues);
  if (issues.empty()) {
    throw std::logic_error("the validator rejects what the schema's explanation accepts: " +
                           results.begin()->description);
  }
  return issues;
}

}  // namespace flashbench
