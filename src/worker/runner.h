// Runs cases on a device, in this process or in a worker process that may die of it.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "case/case_run.h"
#include "device/device.h"
#include "measure/ceilings.h"
#include "measure/counters.h"
#include "providers/provider.h"
#include "report/record.h"

namespace flashbench {

// Where to run, and which providers.
struct RunnerOptions {
  std::string device = "auto";
  int threads = 0;                     // CPU threads; 0: all available
  std::vector<std::string> providers;  // by name; empty: all that the device supports
  std::vector<PluginFile> plugins;     // run after those, unless they are named among them
  std::string program{};  // other program that has the providers; empty: flashbench's own
};

class Runner {
 public:
  virtual ~Runner() = default;

  virtual nlohmann::ordered_json device() const = 0;  // as in a result file
  virtual std::vector<std::string> providers() const = 0;

  virtual std::vector<Ceiling> ceilings(const MeasureOptions&) = 0;

  // Returns one record for each of the named providers, in order, whatever happens to it. Throws
  // NoDevice if the device is no longer usable; BadInput for an unknown provider; BadInput and
  // FileError for input files that do not fit.
  virtual std::vector<Record> run(const Case&, const std::vector<std::string>& providers,
                                  const CaseRunOptions&) = 0;

  // What a provider can run here, and why it cannot run the rest, as `list` prints it.
  virtual std::string describe(const std::string& provider) = 0;

  // Whether hardware counters can be read on the device, and if not, why.
  virtual CounterState counters() = 0;

  // Returns the counters of each of these providers, in order, whatever happens to it; if possible
  // from another process than the one that times. Throws like run().
  virtual std::vector<CounterReport> count(const Case&, const std::vector<std::string>& providers,
                                           const CaseRunOptions&) = 0;

  // Starts a fresh process for the following cases, if possible.
  virtual void renew() {}
};

// Makes a runner in this process, which loads plugins when they are first needed, or in a program
// that it starts. Throws NoDevice; BadInput for an unknown provider or device, or a program that
// cannot be started.
std::unique_ptr<Runner> make_local_runner(const RunnerOptions&, const Watch&);
std::unique_ptr<Runner> make_local_runner(std::unique_ptr<Device>, std::vector<const Provider*>,
                                          const Watch&);

struct IsolationOptions {
  // For a worker to open its device and plugins; then it is killed.
  double start_seconds = 120;
  double case_seconds = 600;  // for a case; then it is asked to end, then killed
  std::function<bool()> interrupted = [] { return false; };
};

// Makes a runner in a worker process: this program, started again with the verb `worker`. If a
// worker dies of a signal or does not answer, the row of the provider at work says so; the others
// run again in a new worker, which first has to show that the device still works. A worker that
// dies while no provider is at work is replaced once. Plugins are loaded into the worker at once;
// if one ends the worker, it gets a row that says so in every case. Throws as above, and BadInput
// for a plugin that cannot be loaded.
std::unique_ptr<Runner> make_isolated_runner(const RunnerOptions&, const IsolationOptions&);

}  // namespace flashbench
