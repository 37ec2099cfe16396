#include "worker/wire.h"

#include "attention/error.h"

namespace flashbench::wire {

namespace {

std::string kind_of(const std::exception& error) {
  if (dynamic_cast<const NoDevice*>(&error) != nullptr) return "no_device";
  if (dynamic_cast<const BadInput*>(&error) != nullptr) return "bad_input";
  if (dynamic_cast<const FileError*>(&error) != nullptr) return "file";
  return "other";
}

}  // namespace

Json to_json(const MeasureOptions& options) {
  return {{"cache", name(options.cache)},
          {"warmup_runs", options.warmup_runs},
          {"warmup_seconds", options.warmup_seconds},
          {"min_samples", options.min_samples},
          {"max_samples", options.max_samples},
          {"target_ci_width", options.target_ci_width},
          {"max_seconds", options.max_seconds},
          {"repetitions", options.repetitions},
          {"counters", name(options.counters)},
          {"energy_seconds", options.energy_seconds}};
}

MeasureOptions measure_options(const Json& json) {
  MeasureOptions options;
  options.cache = parse<CacheState>(json.at("cache").get<std::string>()).value();
  options.warmup_runs = json.at("warmup_runs");
  options.warmup_seconds = json.at("warmup_seconds");
  options.min_samples = json.at("min_samples");
  options.max_samples = json.at("max_samples");
  options.target_ci_width = json.at("target_ci_width");
  options.max_seconds = json.at("max_seconds");
  options.repetitions = json.at("repetitions");
  options.counters = parse<CounterMode>(json.at("counters").get<std::string>()).value();
  options.energy_seconds = json.at("energy_seconds");
  return options;
}

Json to_json(const CaseRunOptions& options) {
  return {{"measure", to_json(options.measure)},
          {"fp64_flops", options.verify.fp64_flops},
          {"time", options.time},
          {"repeat", options.repeat},
          {"dump", options.dump.string()}};
}

CaseRunOptions case_run_options(const Json& json) {
  CaseRunOptions options;
  options.measure = measure_options(json.at("measure"));
  options.verify.fp64_flops = json.at("fp64_flops");
  options.time = json.at("time");
  options.repeat = json.at("repeat");
  options.dump = json.at("dump").get<std::string>();
  return options;
}

Json to_json(const RunnerOptions& options) {
  Json plugins = Json::array();
  for (const PluginFile& plugin : options.plugins) plugins.push_back(to_json(plugin));
  return {{"device", options.device},
          {"threads", options.threads},
          {"providers", options.providers},
          {"plugins", std::move(plugins)},
          {"program", options.program}};
}

RunnerOptions runner_options(const Json& json) {
  RunnerOptions options{
      json.at("device"), json.at("threads"), json.at("providers"), {}, json.at("program")};
  for (const Json& plugin : json.at("plugins")) options.plugins.push_back(plugin_file(plugin));
  return options;
}

Json to_json(const PluginFile& plugin) {
  return {{"provider", plugin.provider}, {"path", plugin.path}, {"xxh3", plugin.xxh3}};
}

PluginFile plugin_file(const Json& json) {
  return {json.at("provider"), json.at("path"), json.at("xxh3")};
}

Json error_answer(const std::exception& error) {
  return {{"error", {{"kind", kind_of(error)}, {"message", error.what()}}}};
}

void throw_if_error(const Json& answer) {
  if (!answer.contains("error")) return;
  const std::string kind = answer.at("error").at("kind");
  const std::string message = answer.at("error").at("message");
  if (kind == "no_device") throw NoDevice(message);
  if (kind == "bad_input") throw BadInput(message);
  if (kind == "file") throw FileError(message);
  throw std::runtime_error(message);
}

}  // namespace flashbench::wire
