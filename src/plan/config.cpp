#include "plan/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "files/read_file.h"
#include "plan/count_of.h"
#include "plan/expand.h"
#include "plan/input_files.h"
#include "plan/json_text.h"
#include "plan/override.h"
#include "plan/schema.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostListed = 50;  // issues in one message

std::string list(const std::string& source, const std::vector<ConfigIssue>& issues) {
  std::string text = fmt::format("{}: {}", source, count_of(issues.size(), "error"));
  for (size_t i = 0; i < std::min(issues.size(), kMostListed); ++i) {
    const std::string place = issues[i].pointer.empty() ? "" : issues[i].pointer + ": ";
    text += "\n  " + printable(place + issues[i].message);
  }
  if (issues.size() > kMostListed) {
    text += fmt::format("\n  and {} more", issues.size() - kMostListed);
  }
  return text;
}

// Whether an issue is at the pointer or below it.
bool has_issue(const std::vector<ConfigIssue>& issues, const std::string& pointer) {
  return std::any_of(issues.begin(), issues.end(), [&](const ConfigIssue& issue) {
    return issue.pointer == pointer || issue.pointer.starts_with(pointer + '/');
  });
}

// What the file does not say stays as it is.
template <typename T>
void read(const Json& object, const char* key, T& value) {
  if (object.contains(key)) value = object.at(key).get<T>();
}

MeasureOptions read_measure(const Json& json, std::vector<ConfigIssue>& issues) {
  MeasureOptions measure;
  if (json.contains("cache")) {
    measure.cache = parse<CacheState>(json.at("cache").get<std::string>()).value();
  }
  read(json, "warmup_runs", measure.warmup_runs);
  read(json, "warmup_seconds", measure.warmup_seconds);
  read(json, "min_samples", measure.min_samples);
  read(json, "max_samples", measure.max_samples);
  read(json, "target_ci_width", measure.target_ci_width);
  read(json, "max_seconds", measure.max_seconds);
  read(json, "repetitions", measure.repetitions);
  if (json.contains("counters")) {
    measure.counters = parse<CounterMode>(json.at("counters").get<std::string>()).value();
  }
  read(json, "energy_seconds", measure.energy_seconds);
  if (measure.max_samples < measure.min_samples) {
    issues.push_back(
        {json.contains("max_samples") ? "/measure/max_samples" : "/measure/min_samples",
         fmt::format("expected max_samples of at least min_samples, got {} and {}",
                     measure.max_samples, measure.min_samples)});
  }
  return measure;
}

std::vector<std::string> read_providers(const Json& json, std::vector<ConfigIssue>& issues) {
  std::vector<std::string> providers;
  for (const std::string name : json) {
    if (std::find(providers.begin(), providers.end(), name) != providers.end()) {
      issues.push_back({fmt::format("/providers/{}", providers.size()),
                        fmt::format("\"{}\" appears twice", name)});
    }
    providers.push_back(name);
  }
  return providers;
}

// Each part that the schema accepts, so that all that is wrong is found at once.
SweepConfig read_config(const Json& json, const std::filesystem::path& folder,
                        std::vector<ConfigIssue>& issues) {
  const auto valid = [&](const char* key) {
    return json.is_object() && json.contains(key) && !has_issue(issues, std::string("/") + key);
  };
  SweepConfig config;
  if (valid("name")) config.name = json.at("name");
  if (valid("description")) config.description = json.at("description");
  if (valid("device")) config.device = json.at("device");
  if (valid("threads")) config.threads = json.at("threads");
  if (valid("providers")) config.providers = read_providers(json.at("providers"), issues);
  if (valid("measure")) config.measure = read_measure(json.at("measure"), issues);
  if (valid("verify")) read(json.at("verify"), "fp64_flops", config.verify.fp64_flops);
  const bool has_blocks = json.is_object() && json.contains("cases") && json.at("cases").is_array();
  if (has_blocks) config.cases = expand_cases(json.at("cases"), folder, issues);
  return config;
}

}  // namespace

ConfigError::ConfigError(std::string source, std::vector<ConfigIssue> issues)
    : std::runtime_error(list(source, issues)), issues_(std::move(issues)) {}

SweepConfig parse_config(std::string_view text, const std::string& source,
                         const std::vector<Override>& overrides) {
  JsonText parsed = parse_json(text);
  std::vector<ConfigIssue> issues = std::move(parsed.issues);
  if (!parsed.value) throw ConfigError(source, std::move(issues));

  Json& document = *parsed.value;
  for (const Override& override : overrides) {
    if (auto issue = apply_override(document, override)) issues.push_back(std::move(*issue));
  }
  for (ConfigIssue& issue : schema_issues(document)) issues.push_back(std::move(issue));

  SweepConfig config = read_config(document, std::filesystem::path(source).parent_path(), issues);
  if (!issues.empty()) throw ConfigError(source, std::move(issues));
  config.json = std::move(document);
  return config;
}

SweepConfig load_config(const std::filesystem::path& path, const std::vector<Override>& overrides) {
  const bool is_file = path != "-";
  const std::string source = is_file ? path.string() : "standard input";
  SweepConfig config = parse_config(read_file(path, kMaxJsonBytes), source, overrides);
  config.files = files_named_in(config.json);
  if (is_file) config.files.push_back(source);
  return config;
}

}  // namespace flashbench
