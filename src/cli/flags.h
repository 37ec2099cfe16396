// Options that several verbs share.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "plan/config.h"
#include "report/record.h"
#include "worker/runner.h"

namespace flashbench {

// --plugin, repeatable.
void add_plugin_flag(CLI::App&, std::vector<std::string>& plugins);

// Where to run, and what; each overrides the config's own value.
struct DeviceFlags {
  std::optional<std::string> device;
  std::optional<int> threads;
  std::optional<std::vector<std::string>> providers;
  std::vector<std::string> plugins;

  void add(CLI::App&);
  void apply(SweepConfig&) const;  // throws BadInput and FileError for plugins
};

// --cudnn PATH and --nccl PATH, which take effect at once (device/cudnn_library.h, nccl_library.h).
void add_library_options(CLI::App&);

// Another program whose providers run instead of flashbench's own.
struct ProgramFlags {
  std::string program;

  void add(CLI::App&);  // call after DeviceFlags, as below

  // The config's providers are flashbench's own; those given by a flag are the program's.
  void apply(SweepConfig&, const DeviceFlags&) const;
};

// How to measure; each overrides the config's own value.
struct MeasureFlags {
  std::optional<int> warmup_runs, min_samples, max_samples, repetitions;
  std::optional<double> max_seconds;
  std::optional<std::string> cache, counters;

  void add(CLI::App&);
  void add_repetitions(CLI::App&);  // for verbs whose cases run in workers
  void apply(MeasureOptions&) const;
};

// Whether a worker process runs the cases, and how long it may take.
struct IsolationFlags {
  bool no_isolate = false;
  double start_timeout = IsolationOptions().start_seconds;
  double case_timeout = IsolationOptions().case_seconds;

  void add(CLI::App&);

  // In a process that times, counters that are read only if possible are not read. Throws BadInput
  // for repetitions, which are other processes.
  void apply(MeasureOptions&) const;

  // Makes a runner, and starts to watch for interrupts. Throws NoDevice; BadInput for an unknown
  // provider and for a plugin that cannot be loaded.
  std::unique_ptr<Runner> make_runner(const SweepConfig&) const;
};

// --filter, repeatable: selects the cases that every filter keeps.
struct FilterFlags {
  std::vector<std::string> filters;

  void add(CLI::App&);
  bool keeps(const Case&) const;  // throws ConfigError for an invalid filter

  // The config with the cases that it keeps. Throws BadInput, naming the source, if there are none.
  SweepConfig keep(SweepConfig, const std::string& source) const;
};

// The config file, and the changes and filters applied to it.
struct ConfigFlags {
  std::string path;
  std::vector<std::string> overrides;
  FilterFlags filter;

  void add(CLI::App&);
  SweepConfig load() const;  // throws ConfigError, FileError
};

// Files for a result, one format each; "-" is stdout.
struct ExportFlags {
  std::string json, csv, markdown;

  void add(CLI::App&);
  void check(const std::vector<std::string>& inputs) const;  // see check_outputs
  void write(const SweepResult&) const;
  bool takes_stdout() const { return json == "-" || csv == "-" || markdown == "-"; }
};

}  // namespace flashbench
