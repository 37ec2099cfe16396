// A sweep config: JSON text checked against configs/sweep.schema.json and against what a schema
// cannot say, then turned into the cases to run.
#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "device/inputs.h"
#include "plan/plugin_file.h"

namespace flashbench {

enum class CacheState { warm, cold };
std::string_view name(CacheState);

// Hardware counters: where they can be read; or else nothing is run, and in detail; or not at all.
enum class CounterMode { automatic, on, off };
inline constexpr std::array kCounterModes{CounterMode::automatic, CounterMode::on,
                                          CounterMode::off};
std::string_view name(CounterMode);  // "auto", "on", "off"

// How long and how often to measure. The rules: docs/measuring.md.
struct MeasureOptions {
  CacheState cache = CacheState::warm;
  int warmup_runs = 2;          // at least
  double warmup_seconds = 0.1;  // at least, per provider
  int min_samples = 10;
  int max_samples = 200;
  double target_ci_width = 0.02;  // stop when the median's 95% interval is this narrow, relatively
  double max_seconds = 5;         // cap on the measuring of one provider on one case
  int repetitions = 1;            // of every case, each in a process of its own
  CounterMode counters = CounterMode::automatic;
  double energy_seconds = 0.2;  // runs on end whose energy is measured, at least; 0: it is not
};

struct VerifyOptions {
  double fp64_flops = 4e11;  // budget of one case's reference; above it rows are sampled
};

// One thing to run: a problem, what its inputs are and how all tensors lie in memory.
struct Case {
  Problem problem;
  InputSpec inputs;
  Placement placement = Placement::contiguous;

  std::string key() const;  // stable and unique within a sweep
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
