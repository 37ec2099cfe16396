#include <algorithm>
#include <map>
#include <vector>

#include "attention/error.h"
#include "case/case_counters.h"
#include "case/choose.h"
#include "case/support.h"
#include "program/program.h"
#include "providers/plugin.h"
#include "report/environment.h"
#include "worker/runner.h"

namespace flashbench {

namespace {

constexpr double kCeilingSeconds = 1;  // at most, per ceiling before a sweep; `info` uses more

// Runs providers on a device, and the ceiling that they are compared with.
class LocalRunner : public Runner {
 public:
  // `kept` are the providers that this object owns.
  LocalRunner(std::unique_ptr<Device> device, std::vector<std::unique_ptr<Provider>> kept,
              std::vector<const Provider*> providers, const Watch& watch)
      : device_(std::move(device)),
        kept_(std::move(kept)),
        providers_(std::move(providers)),
        watch_(watch) {}

  nlohmann::ordered_json device() const override { return device_json(*device_); }

  std::vector<std::string> providers() const override {
    std::vector<std::string> names;
    for (const Provider* provider : providers_) names.emplace_back(provider->name());
    return names;
  }

  std::vector<Ceiling> ceilings(const MeasureOptions& options) override {
    MeasureOptions measure = options;
    measure.max_seconds = std::min(measure.max_seconds, kCeilingSeconds);
    return measure_ceilings(own_device(), measure, watch_.interrupted);
  }

  std::vector<Record> run(const Case& item, const std::vector<std::string>& providers,
                          const CaseRunOptions& options) override {
    GemmCeiling* gemm = options.time ? &gemm_of(item.problem.dtype) : nullptr;
    return run_case(item, named(providers), *device_, gemm, options, watch_);
  }

  std::string describe(const std::string& provider) override {
    return support_text(*named({provider}).at(0), device_->info());
  }

  CounterState counters() override { return reader().state(); }

  std::vector<CounterReport> count(const Case& item, const std::vector<std::string>& providers,
                                   const CaseRunOptions& options) override {
    return count_case(item, named(providers), *device_, reader(), options, watch_);
  }

 protected:
  // This process's device, and the GEMM that is timed with the providers.
  virtual Device& own_device() { return *device_; }
  virtual std::unique_ptr<GemmCeiling> make_gemm(Dtype dtype) {
    return make_gemm_ceiling(*device_, dtype);
  }

 private:
  GemmCeiling& gemm_of(Dtype dtype) {
    if (device_->info().kind == DeviceKind::cpu) dtype = Dtype::fp32;  // one GEMM for all dtypes
    if (dtype == Dtype::e4m3) dtype = Dtype::bf16;  // cuBLAS has none by the interface that we use
    std::unique_ptr<GemmCeiling>& gemm = gemms_[dtype];
    if (gemm == nullptr) gemm = make_gemm(dtype);
    return *gemm;
  }

  CounterReader& reader() {
    if (reader_ == nullptr) reader_ = make_counter_reader(*device_);
    return *reader_;
  }

  std::vector<const Provider*> named(const std::vector<std::string>& names) const {
    std::vector<const Provider*> found;
    for (const std::string& name : names) {
      const auto is_named = [&](const Provider* provider) { return provider->name() == name; };
      const auto provider = std::find_if(providers_.begin(), providers_.end(), is_named);
      if (provider == providers_.end()) throw BadInput("no provider \"" + name + "\" runs here");
      found.push_back(*provider);
    }
    return found;
  }

  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Provider>> kept_;
  std::vector<const Provider*> providers_;
  Watch watch_;
  std::map<Dtype, std::unique_ptr<GemmCeiling>> gemms_;
  std::unique_ptr<CounterReader> reader_;  // created when counters are first requested
};

// Runs another program's providers and GEMM.
class ProgramRunner final : public LocalRunner {
 public:
  // `device` is `program`.
  ProgramRunner(ProgramDevice& program, std::unique_ptr<Device> device,
                std::vector<std::unique_ptr<Provider>> kept, std::vector<const Provider*> providers,
                const Watch& watch)
      : LocalRunner(std::move(device), std::move(kept), std::move(providers), watch),
        program_(program) {}

  CounterState counters() override { return no_program_counters(); }

 protected:
  Device& own_device() override { return program_.beside(); }
  std::unique_ptr<GemmCeiling> make_gemm(Dtype dtype) override {
    return make_program_gemm(program_, dtype);
  }

 private:
  ProgramDevice& program_;
};

std::unique_ptr<Runner> make_program_runner(std::unique_ptr<Device> beside,
                                            const RunnerOptions& options, const Watch& watch) {
  auto device =
      std::make_unique<ProgramDevice>(std::move(beside), options.program, options.providers);
  ProgramDevice& program = *device;
  auto kept = make_program_providers(program);
  std::vector<const Provider*> providers;
  for (const auto& provider : kept) providers.push_back(provider.get());
  return std::make_unique<ProgramRunner>(program, std::move(device), std::move(kept),
                                         std::move(providers), watch);
}

}  // namespace

std::unique_ptr<Runner> make_local_runner(std::unique_ptr<Device> device,
                                          std::vector<const Provider*> providers,
                                          const Watch& watch) {
  return std::make_unique<LocalRunner>(std::move(device), std::vector<std::unique_ptr<Provider>>{},
                                       std::move(providers), watch);
}

std::unique_ptr<Runner> make_local_runner(const RunnerOptions& options, const Watch& watch) {
  auto device = make_device(options.device, options.threads);
  if (!options.program.empty()) return make_program_runner(std::move(device), options, watch);
  std::vector<std::unique_ptr<Provider>> plugins;
  for (const PluginFile& plugin : options.plugins) {
    plugins.push_back(make_plugin_provider(plugin.provider, plugin.path, plugin.xxh3));
  }
  auto providers = choose_providers(options.providers, device->info().kind, plugins);
  return std::make_unique<LocalRunner>(std::move(device), std::move(plugins), std::move(providers),
                                       watch);
}

}  // namespace flashbench
