#include "cli/flags.h"
#include "cli/outputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/error.h"
#include "cli/numbers.h"
#include "device/cudnn_library.h"
#include "device/nccl_library.h"
#include "files/atomic_file.h"
#include "plan/find_config.h"
#include "providers/plugin.h"
#include "report/csv.h"
#include "report/json.h"
#include "report/markdown.h"
#include "worker/interrupt.h"

namespace flashbench {

namespace {

template <typename T>
void set_if_given(T& target, const std::optional<T>& value) {
  if (value) target = *value;
}

std::vector<std::string> names_in(const std::string& list) {
  // split() drops an empty part at the end.
  std::vector<std::string> names = CLI::detail::split(list, ',');
  if (list.ends_with(',') || std::ranges::find(names, "") != names.end()) {
    throw CLI::ValidationError("--providers",
                               fmt::format("expected names between commas, got \"{}\"", list));
  }
  return names;
}

}  // namespace

void add_plugin_flag(CLI::App& app, std::vector<std::string>& plugins) {
  app.add_option("--plugin", plugins,
                 "Also run the kernel of this shared object (an absolute path), as the provider "
                 "plugin:NAME (repeatable)")
      ->type_name("[NAME=]FILE")
      ->allow_extra_args(false);
}

void DeviceFlags::add(CLI::App& app) {
  app.add_option("--device", device, "auto, cpu, cuda, cuda:N, or cuda:N,N,...")
      ->type_name("DEVICE");
  app.add_option("--threads", threads, "CPU threads (default: all available)")
      ->transform(from_to(1, 4096));
  // Does not use CLI11's delimiter(), which drops empty names.
  app.add_option_function<std::string>(
         "--providers", [this](const std::string& text) { providers = names_in(text); },
         "Providers to run, comma separated (see: list); tiled:* stands for all whose names begin "
         "so")
      ->type_name("NAME,...");
  add_plugin_flag(app, plugins);
  add_library_options(app);
}

void DeviceFlags::apply(SweepConfig& config) const {
  config.plugins = parse_plugins(plugins);
  set_if_given(config.device, device);
  set_if_given(config.threads, threads);
  set_if_given(config.providers, providers);
}

void add_library_options(CLI::App& app) {
  app.add_option_function<std::string>(
         "--cudnn", use_cudnn,
         "libcudnn.so.9, or its folder (default: the variable FLASHBENCH_CUDNN, else a search)")
      ->type_name("PATH");
  app.add_option_function<std::string>(
         "--nccl", use_nccl,
         "libnccl.so.2, or its folder (default: the variable FLASHBENCH_NCCL, else a search)")
      ->type_name("PATH");
}

void ProgramFlags::add(CLI::App& app) {
  app.add_option("--program", program,
                 "Run the providers of another program, e.g. scripts/torch_sdpa.py")
      ->type_name("FILE")
      ->excludes("--plugin");
}

void ProgramFlags::apply(SweepConfig& config, const DeviceFlags& device) const {
  if (program.empty()) return;
  config.program = program;
  if (!device.providers) config.providers.clear();
}

void MeasureFlags::add(CLI::App& app) {
  app.add_option("--warmup", warmup_runs, "Minimum number of warm-up runs")
      ->transform(from_to(0, 1000000));
  app.add_option("--min-samples", min_samples, "Minimum number of samples")
      ->transform(from_to(1, 1000000));
  app.add_option("--max-samples", max_samples, "Maximum number of samples")
      ->transform(from_to(1, 1000000));
  app.add_option(
         "--timeout", max_seconds,
         "Seconds of sampling for each provider on each case; no run begins after that, but the "
         "first run may take longer, up to --case-timeout")
      ->transform(from_to(0.0, 1e6));
  app.add_option("--cache", cache, "Cache state before each sample: warm or cold")
      ->check(CLI::IsMember({"warm", "cold"}));
  app.add_option("--counters", counters,
                 "Read hardware counters after the timing: auto (if they can be read), on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}));
}

void MeasureFlags::add_repetitions(CLI::App& app) {
  app.add_option("--repetitions", repetitions,
                 "Number of runs of the whole list of cases, each in a new process")
      ->transform(from_to(1, 100));
}

void MeasureFlags::apply(MeasureOptions& options) const {
  set_if_given(options.warmup_runs, warmup_runs);
  set_if_given(options.min_samples, min_samples);
  set_if_given(options.max_samples, max_samples);
  set_if_given(options.max_seconds, max_seconds);
  set_if_given(options.repetitions, repetitions);
  if (cache) options.cache = parse<CacheState>(*cache).value();
  if (counters) options.counters = parse<CounterMode>(*counters).value();
  if (options.max_samples < options.min_samples) {
    throw BadInput(fmt::format("--max-samples must be at least --min-samples, got {} and {}",
                               options.max_samples, options.min_samples));
  }
}

void IsolationFlags::add(CLI::App& app) {
  app.add_flag("--no-isolate", no_isolate,
               "Run in this process: a crash or a hang ends everything (for debuggers)");
  app.add_option("--start-timeout", start_timeout,
                 "Seconds for a device, a plugin or a program to open; after that, it is killed")
      ->transform(from_to(0.1, 1e6))
      ->capture_default_str();
  app.add_option("--case-timeout", case_timeout,
                 "Seconds for a whole case; after that, its worker is killed")
      ->transform(from_to(0.1, 1e6))
      ->capture_default_str();
}

void IsolationFlags::apply(MeasureOptions& options) const {
  if (!no_isolate) return;
  if (options.counters == CounterMode::automatic) options.counters = CounterMode::off;
  if (options.repetitions > 1) {
    throw BadInput(
        fmt::format("each of {} repetitions needs a process of its own, which --no-isolate does "
                    "not start: expected --repetitions 1",
                    options.repetitions));
  }
}

std::unique_ptr<Runner> IsolationFlags::make_runner(const SweepConfig& config) const {
  watch_for_interrupts();
  const RunnerOptions options{config.device, config.threads, config.providers, config.plugins,
                              config.program};
  if (no_isolate) {
    auto runner = make_local_runner(options, Watch{interrupted});
    for (const PluginFile& plugin : config.plugins) load_plugin(plugin.path, plugin.xxh3);
    return runner;
  }
  return make_isolated_runner(options, {start_timeout, case_timeout, interrupted});
}

void FilterFlags::add(CLI::App& app) {
  app.add_option("--filter", filters,
                 "Keep the cases with these values, e.g. pass=forward,head_dim=64|128 (repeatable)")
      ->type_name("KEY=V|V,...")
      ->allow_extra_args(false);
}

bool FilterFlags::keeps(const Case& item) const {
  return std::all_of(filters.begin(), filters.end(),
                     [&](const std::string& text) { return CaseFilter(text).keeps(item); });
}

SweepConfig FilterFlags::keep(SweepConfig config, const std::string& source) const {
  std::erase_if(config.cases, [&](const Case& item) { return !keeps(item); });
  if (config.cases.empty()) throw BadInput(source + ": no case is left after --filter");
  return config;
}

void ConfigFlags::add(CLI::App& app) {
  app.add_option("-c,--config", path,
                 "Sweep config (JSON): a file, the name of one that ships with flashbench, e.g. "
                 "quick, or - for "
                 "standard input")
      ->required()
      ->type_name("FILE|NAME");
  app.footer(config_help());
  app.add_option("--set", overrides,
                 "Replace a value of the config, e.g. /measure/max_seconds=2 (repeatable)")
      ->type_name("/POINTER=VALUE")
      ->allow_extra_args(false);
  filter.add(app);
}

SweepConfig ConfigFlags::load() const {
  std::vector<Override> parsed;
  for (const std::string& text : overrides) parsed.push_back(parse_override(text));
  return filter.keep(load_config(find_config(path), parsed), path);
}

void ExportFlags::add(CLI::App& app) {
  app.add_option("--json", json, "Write the result as JSON (- for stdout)")->type_name("FILE");
  app.add_option("--csv", csv, "Write the result as CSV (- for stdout)")->type_name("FILE");
  app.add_option("--md", markdown, "Write the result as Markdown (- for stdout)")
      ->type_name("FILE");
}

void ExportFlags::check(const std::vector<std::string>& inputs) const {
  check_outputs({{"--json", json}, {"--csv", csv}, {"--md", markdown}}, inputs);
}

void ExportFlags::write(const SweepResult& result) const {
  if (!json.empty()) write_text(json, to_json(result));
  if (!csv.empty()) write_text(csv, to_csv(result));
  if (!markdown.empty()) write_text(markdown, to_markdown(result));
}

}  // namespace flashbench
