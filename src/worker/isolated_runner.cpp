#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "program/program.h"
#include "report/json.h"
#include "worker/runner.h"
#include "worker/wire.h"
#include "worker/worker_process.h"

namespace flashbench {

namespace {

using wire::Json;

constexpr double kCeilingsSeconds = 120;

// Throws unless these are the rows of a case: each provider's once, in order.
void require_rows_of(const std::vector<Record>& records, const Case& item,
                     const std::vector<std::string>& providers) {
  std::vector<std::string> found;
  for (const Record& record : records) {
    found.push_back(record.provider);
    if (record.item.key() != item.key()) {
      throw std::runtime_error(
          fmt::format("expected the case {}, found {}", item.key(), record.item.key()));
    }
  }
  if (found != providers) {
    throw std::runtime_error(fmt::format("expected rows of {}, found rows of {}",
                                         fmt::join(providers, ", "), fmt::join(found, ", ")));
  }
}

class IsolatedRunner : public Runner {
 public:
  IsolatedRunner(const RunnerOptions& options, const IsolationOptions& isolation)
      : options_(options), isolation_(isolation) {
    start_worker();
  }

  Json device() const override { return device_; }
  std::vector<std::string> providers() const override { return providers_; }

  std::vector<Ceiling> ceilings(const MeasureOptions& options) override {
    const Json request{{"do", "ceilings"}, {"measure", wire::to_json(options)}};
    auto outcome = ask(*worker_, request, kCeilingsSeconds);
    if (std::holds_alternative<AbnormalEnd>(outcome) && !isolation_.interrupted()) {
      renew();
      outcome = ask(*worker_, request, kCeilingsSeconds);
    }
    const Json answer = answer_or_throw(outcome);
    std::vector<Ceiling> ceilings;
    for (const Json& ceiling : answer.at("ceilings")) {
      ceilings.push_back(ceiling_from_json(ceiling));
    }
    return ceilings;
  }

  std::vector<Record> run(const Case& item, const std::vector<std::string>& providers,
                          const CaseRunOptions& options) override {
    std::map<std::string, Record> records;
    std::vector<std::string> left;
    for (const std::string& name : providers) {
      const auto broken = broken_.find(name);
      if (broken == broken_.end()) {
        left.push_back(name);
      } else {
        records[name] = ended(item, name, broken->second);
      }
    }
    std::vector<std::string> apart;  // plugins that run alone, after the others
    for (bool tried_again = false; !left.empty() || !apart.empty();) {
      if (left.empty()) {
        left = {apart.back()};
        apart.pop_back();
        tried_again = false;
      }
      const auto outcome = ask_for(item, left, options);
      if (const auto* answered = std::get_if<std::vector<Record>>(&outcome)) {
        const int culprit = left_running_;
        if (culprit < 0) {
          for (const Record& record : *answered) records[record.provider] = record;
          left.clear();
          continue;
        }
        // The times of the others would be disturbed by what it left running.
        const std::string name = left.at(static_cast<size_t>(culprit));
        records[name] = answered->at(static_cast<size_t>(culprit));
        left.erase(left.begin() + culprit);
        renew();
        continue;
      }
      const auto& end = std::get<AbnormalEnd>(outcome);
      const int culprit = worker_->at_work();
      worker_.reset();
      if (isolation_.interrupted()) return all(item, providers, {Status::skipped, "interrupted"});
      start_worker();
      const bool known = culprit >= 0 && culprit < static_cast<int>(left.size());
      const bool may_be_of_others = !known || !is_plugin(left[static_cast<size_t>(culprit)]);
      if (may_be_of_others && take_plugins_apart(left, apart)) continue;
      if (known) {
        const std::string name = left[static_cast<size_t>(culprit)];
        records[name] = ended(item, name, end);
        left.erase(left.begin() + culprit);
      } else if (tried_again) {
        // No provider was at work: the cause is the inputs, their reference or the worker itself.
        for (const std::string& name : left) records[name] = ended(item, name, end);
        left.clear();
      } else {
        tried_again = true;
      }
    }
    return in_order(providers, records);
  }

  std::string describe(const std::string& provider) override {
    if (const auto broken = broken_.find(provider); broken != broken_.end()) {
      throw std::runtime_error(broken->second.reason);
    }
    const auto outcome = ask(*worker_, {{"do", "describe"}, {"provider", provider}});
    if (const auto* end = std::get_if<AbnormalEnd>(&outcome)) {
      throw std::runtime_error(end->reason);
    }
    const Json answer = Json::parse(std::get<Answer>(outcome).text);
    wire::throw_if_error(answer);
    return answer.at("text");
  }

  CounterState counters() override {
    // Needs no worker, which would start the program once more.
    if (!options_.program.empty()) return no_program_counters();
    if (device_.at("kind") == name(DeviceKind::cpu)) {
      return make_counter_reader(*make_host_device(1))->state();
    }
    const Json answer = answer_or_throw(ask(counting_worker(), {{"do", "counters"}}));
    return counter_state_from_json(answer.at("counters"));
  }

  // As in run(): a provider that was at work when the worker died has no counts; the others are
  // counted again.
  std::vector<CounterReport> count(const Case& item, const std::vector<std::string>& providers,
                                   const CaseRunOptions& options) override {
    std::map<std::string, CounterReport> reports;
    for (std::vector<std::string> left = providers; !left.empty();) {
      WorkerProcess& worker = counting_worker();
      const auto outcome = counts_of(worker.ask(request("count", item, left, options).dump(),
                                                isolation_.case_seconds, isolation_.interrupted),
                                     left.size());
      if (const auto* counts = std::get_if<std::vector<CounterReport>>(&outcome)) {
        for (size_t i = 0; i < left.size(); ++i) reports[left[i]] = (*counts)[i];
        break;
      }
      const auto culprit = static_cast<size_t>(worker.at_work());
      counting_.reset();
      const bool known = culprit < left.size() && !isolation_.interrupted();
      for (const std::string& name : known ? std::vector{left[culprit]} : left) {
        reports[name].state = {.status = CounterStatus::failed,
                               .reason = std::get<AbnormalEnd>(outcome).reason};
        std::erase(left, name);
      }
    }
    return in_order(providers, reports);
  }

  void renew() override {
    worker_.reset();
    start_worker();
  }

 private:
  using Outcome = std::variant<std::vector<Record>, AbnormalEnd>;

  // What a plugin did to the process may end it while another provider is at work. Returns false if
  // there are not both plugins and others.
  static bool take_plugins_apart(std::vector<std::string>& left, std::vector<std::string>& apart) {
    const auto first_plugin = std::stable_partition(
        left.begin(), left.end(), [](const std::string& name) { return !is_plugin(name); });
    if (first_plugin == left.begin() || first_plugin == left.end()) return false;
    apart.assign(first_plugin, left.end());
    left.erase(first_plugin, left.end());
    return true;
  }

  Record ended(const Case& item, const std::string& provider, const AbnormalEnd& end) const {
    Record record;
    record.item = item;
    record.provider = provider;
    record.program = options_.program;
    record.status = end.status;
    record.reason = end.reason;
    return record;
  }

  std::vector<Record> all(const Case& item, const std::vector<std::string>& providers,
                          const AbnormalEnd& end) const {
    std::vector<Record> records;
    for (const std::string& provider : providers) records.push_back(ended(item, provider, end));
    return records;
  }

  template <typename Row>
  static std::vector<Row> in_order(const std::vector<std::string>& providers,
                                   std::map<std::string, Row>& rows) {
    std::vector<Row> ordered;
    for (const std::string& provider : providers) ordered.push_back(std::move(rows.at(provider)));
    return ordered;
  }

  // A new worker opens the device and tests it; after an abnormal end this shows whether the device
  // still works.
  void start_worker() {
    worker_ = std::make_unique<WorkerProcess>();
    auto outcome = open(*worker_);
    if (const auto* end = std::get_if<AbnormalEnd>(&outcome);
        end != nullptr && end->status == Status::crashed && !isolation_.interrupted()) {
      worker_ = std::make_unique<WorkerProcess>();
      outcome = open(*worker_);
    }
    const Json answer = answer_or_throw(outcome);
    device_ = answer.at("device");
    providers_ = answer.at("providers").get<std::vector<std::string>>();
    load_plugins();
  }

  // Called after the device is opened, so that plugins do not affect which libraries it uses. A
  // worker that does not survive a plugin is replaced by one without that plugin.
  void load_plugins() {
    for (const PluginFile& plugin : options_.plugins) {
      if (broken_.contains(plugin.provider)) continue;
      const Json request{{"do", "load"}, {"plugin", wire::to_json(plugin)}};
      auto outcome = ask(*worker_, request);
      if (auto* end = std::get_if<AbnormalEnd>(&outcome)) {
        end->reason = "when it was loaded, " + end->reason;
        broken_[plugin.provider] = std::move(*end);
        return start_worker();
      }
      wire::throw_if_error(Json::parse(std::get<Answer>(outcome).text));
    }
  }

  // Counters run in a separate worker, so that a worker that times never has a profiler in it. It
  // idles in between, and loads plugins when it needs them.
  WorkerProcess& counting_worker() {
    if (counting_ == nullptr) {
      auto worker = std::make_unique<WorkerProcess>();
      answer_or_throw(open(*worker));
      counting_ = std::move(worker);
    }
    return *counting_;
  }

  std::variant<Answer, AbnormalEnd> open(WorkerProcess& worker) {
    Json request = wire::to_json(options_);
    request["do"] = "open";
    return ask(worker, request);
  }

  // For all requests but cases.
  std::variant<Answer, AbnormalEnd> ask(WorkerProcess& worker, const Json& request) {
    return ask(worker, request, isolation_.start_seconds);
  }
  std::variant<Answer, AbnormalEnd> ask(WorkerProcess& worker, const Json& request,
                                        double seconds) {
    return worker.ask(request.dump(), seconds, isolation_.interrupted);
  }

  // Throws NoDevice if there is no answer, or the exception that the answer contains.
  static Json answer_or_throw(const std::variant<Answer, AbnormalEnd>& outcome) {
    if (const auto* end = std::get_if<AbnormalEnd>(&outcome)) {
      throw NoDevice(fmt::format("the device cannot be used: {}", end->reason));
    }
    Json answer = Json::parse(std::get<Answer>(outcome).text);
    wire::throw_if_error(answer);
    return answer;
  }

  static Json request(const char* what, const Case& item, const std::vector<std::string>& providers,
                      const CaseRunOptions& options) {
    return {{"do", what},
            {"case", case_to_json(item)},
            {"providers", providers},
            {"options", wire::to_json(options)}};
  }

  Outcome ask_for(const Case& item, const std::vector<std::string>& providers,
                  const CaseRunOptions& options) {
    auto outcome = worker_->ask(request("case", item, providers, options).dump(),
                                isolation_.case_seconds, isolation_.interrupted);
    if (auto* end = std::get_if<AbnormalEnd>(&outcome)) return std::move(*end);
    return records_of(std::get<Answer>(outcome), item, providers);
  }

  static AbnormalEnd not_asked_for(const std::exception& error) {
    return {Status::crashed,
            fmt::format("the answer of its worker is not what it was asked for: {}", error.what())};
  }

  static std::variant<std::vector<CounterReport>, AbnormalEnd> counts_of(
      const std::variant<Answer, AbnormalEnd>& outcome, size_t providers) {
    if (const auto* end = std::get_if<AbnormalEnd>(&outcome)) return *end;
    const Json json = Json::parse(std::get<Answer>(outcome).text);
    wire::throw_if_error(json);
    std::vector<CounterReport> counts;
    try {
      for (const Json& count : json.at("counts")) counts.push_back(counter_report_from_json(count));
      if (counts.size() != providers) {
        throw std::runtime_error(
            fmt::format("expected counts of {} providers, found {}", providers, counts.size()));
      }
    } catch (const std::exception& error) {
      return not_asked_for(error);
    }
    return counts;
  }

  Outcome records_of(const Answer& answer, const Case& item,
                     const std::vector<std::string>& providers) {
    left_running_ = worker_->left_running();
    const Json json = Json::parse(answer.text);
    wire::throw_if_error(json);
    std::vector<Record> records;
    try {
      for (const Json& record : json.at("records")) records.push_back(record_from_json(record));
      require_rows_of(records, item, providers);
    } catch (const std::exception& error) {
      return not_asked_for(error);
    }
    const bool ill = std::any_of(records.begin(), records.end(), [](const Record& r) {
      return r.status == Status::error || r.status == Status::out_of_memory;
    });
    if (answer.after_deadline) mark_late(records);
    if ((answer.after_deadline && !isolation_.interrupted()) || ill) renew();
    return records;
  }

  // Marks the records that the deadline prevented or cut short.
  void mark_late(std::vector<Record>& records) const {
    for (Record& record : records) {
      if (record.status == Status::skipped) {
        record.status = Status::timeout;
        record.reason = fmt::format("the case was not done within {:g} s", isolation_.case_seconds);
      }
      if (record.measurement) record.measurement->stop_reason = "deadline";
    }
  }

  RunnerOptions options_;
  IsolationOptions isolation_;
  int left_running_ = -1;  // provider that left something running in the worker that answered last
  std::unique_ptr<WorkerProcess> worker_;
  std::unique_ptr<WorkerProcess> counting_;  // created when counters are first requested
  Json device_;
  std::vector<std::string> providers_;
  std::map<std::string, AbnormalEnd> broken_;  // plugins that cannot be loaded, by provider
};

}  // namespace

std::unique_ptr<Runner> make_isolated_runner(const RunnerOptions& options,
                                             const IsolationOptions& isolation) {
  return std::make_unique<IsolatedRunner>(options, isolation);
}

}  // namespace flashbench
