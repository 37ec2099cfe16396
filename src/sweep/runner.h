// Something that runs cases on a device: this process, or a worker process that may die of it.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "measure/ceilings.h"
#include "measure/counters.h"
#include "providers/provider.h"
#include "report/record.h"
#include "sweep/case_run.h"

namespace flashbench {

// Where to run, and what.
struct RunnerOptions {
  std::string device = "auto";
  int threads = 0;                     // CPU threads; 0: all available
  std::vector<std::string> providers;  // by name; empty: all that the device supports
  std::vector<PluginFile> plugins;     // run too, after those, unless they are named among them
  std::string program{};               // whose providers they are; empty: flashbench's own
};

class Runner {
 public:
  virtual ~Runner() = default;

  virtual nlohmann::ordered_json device() const = 0;  // as in a result file
  virtual std::vector<std::string> providers() const = 0;

  virtual std::vector<Ceiling> ceilings(const MeasureOptions&) = 0;

  // One record for each of the providers named, in order, whatever happens to it. Throws NoDevice
  // if the device cannot be used any more; BadInput and FileError for input files that do not fit.
  virtual std::vector<Record> run(const Case&, const std::vector<std::string>& providers,
                                  const CaseRunOptions&) = 0;

  // What a provider can run here and why not, as `list` prints it.
  virtual std::string describe(const std::string& provider) = 0;

  // Whether hardware counters can be read on the device, and if not, why.
  virtual CounterState counters() = 0;

  // What they say of each of these providers, in order, whatever happens to it; where there is a
  // choice in another process than what is timed. Throws as run() does.
  virtual std::vector<CounterReport> count(const Case&, const std::vector<std::string>& providers,
                                           const CaseRunOptions&) = 0;

  // Lets what follows run in a fresh process, where there is a choice.
  virtual void renew() {}
};

// Runs in this process, and loads plugins into it when they are first needed; or in a program that
// it starts. Throws NoDevice; BadInput for an unknown provider or device, or a program that cannot
// be started.
std::unique_ptr<Runner> make_local_runner(const RunnerOptions&, const Watch&);
std::unique_ptr<Runner> make_local_runner(std::unique_ptr<Device>, std::vector<const Provider*>,
                                          const Watch&);

struct IsolationOptions {
  double case_seconds = 600;  // a worker that has not answered by then is asked to end, then killed
  std::function<bool()> interrupted = [] { return false; };
};

// Runs in a worker process: this program, started again with the verb `worker`. A worker that dies,
// by whatever signal, or does not answer costs the provider that was at work its row; the others
// run again in a new worker, which first has to show that the device still works. A worker that
// dies while nobody was at work is replaced once. Plugins are loaded into the worker at once; one
// that ends it there has a row that says so for every case. Throws as above, and BadInput for a
// plugin that cannot be loaded.
std::unique_ptr<Runner> make_isolated_runner(const RunnerOptions&, const IsolationOptions&);

}  // namespace flashbench
