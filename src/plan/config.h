// A sweep config: JSON text checked against configs/sweep.schema.json and against what a schema
// cannot say, then turned into the cases to run.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "inputs/inputs.h"
#include "measure/options.h"
#include "plan/plugin_file.h"
#include "plan/shard.h"

namespace flashbench {

struct VerifyOptions {
  double fp64_flops = 4e11;  // budget of one case's reference; above it rows are sampled
};

// One thing to run: a problem, what its inputs are and how all tensors lie in memory.
struct Case {
  Problem problem;
  InputSpec inputs;
  Placement placement = Placement::contiguous;

  std::string key() const;  // stable and unique within a sweep

  // A sentence that says what does not go together; empty for a valid case.
  std::optional<std::string> invalid() const;

  bool operator==(const Case&) const = default;
};

struct SweepConfig {
  std::string name;
  std::string description;
  std::string device = "auto";
  int threads = 0;                     // CPU threads; 0: all available
  std::vector<std::string> providers;  // empty: all that the device supports
  std::vector<PluginFile> plugins;     // of the command line: a config loads no code
  std::string program;                 // of the command line: what runs them; empty: flashbench
  MeasureOptions measure;
  VerifyOptions verify;
  std::optional<ShardPlan> shard;  // of the command line: these are a part of the cases
  std::vector<std::string> files;  // that it was read from: its own, and what it names in JSON
  std::vector<Case> cases;      // every block's axes multiplied out, in order, without duplicates
  nlohmann::ordered_json json;  // the document after --set, as recorded in results
};

// One thing wrong with a config.
struct ConfigIssue {
  std::string pointer;  // JSON pointer, e.g. "/cases/0/head_dim/1"
  std::string message;  // what was expected, what was found, and what may have been meant
};

// All that is wrong with a config, at once.
class ConfigError : public std::runtime_error {
 public:
  ConfigError(std::string source, std::vector<ConfigIssue> issues);
  const std::vector<ConfigIssue>& issues() const { return issues_; }

 private:
  std::vector<ConfigIssue> issues_;
};

// A --set argument: "/measure/max_seconds=2". The value is JSON, or else taken as a string.
struct Override {
  std::string pointer;
  nlohmann::ordered_json value;
};
Override parse_override(std::string_view text);  // throws ConfigError

// A --filter argument: "pass=forward,head_dim=64|128": keeps cases whose axes have these values.
class CaseFilter {
 public:
  CaseFilter() = default;
  explicit CaseFilter(std::string_view text);  // throws ConfigError
  bool keeps(const Case&) const;

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> wanted_;
};

inline constexpr int64_t kMaxCases = 20000;

// "-" is standard input. Throws ConfigError; FileError if the file cannot be read.
SweepConfig load_config(const std::filesystem::path& path, const std::vector<Override>& overrides);

// The same from text; `source` names it in messages.
SweepConfig parse_config(std::string_view text, const std::string& source,
                         const std::vector<Override>& overrides);

}  // namespace flashbench
