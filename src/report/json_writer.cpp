#include <cmath>

#include "plan/axis.h"
#include "report/json.h"
#include "report/notes.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and no infinity.
Json figure(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json determinism_json(const Determinism& determinism) {
  return {{"kind", name(determinism.kind)},
          {"runs", determinism.runs},
          {"max_lambda", figure(determinism.max_lambda)}};
}

Json rmse_json(const Rmse& rmse) {
  return {{"rmse", figure(rmse.value)},
          {"low", optional_json(rmse.low)},
          {"high", optional_json(rmse.high)}};
}

Json recipe_cost_json(const RecipeCost& cost) {
  return {{"total", rmse_json(cost.total)},   {"quant", rmse_json(cost.quant)},
          {"kernel", rmse_json(cost.kernel)}, {"rms_o", figure(cost.rms_o)},
          {"storing", figure(cost.storing)},  {"heads", cost.heads},
          {"elements", cost.elements}};
}

Json verdict_json(const Verdict& verdict) {
  Json tensors = Json::array();
  for (const TensorError& error : verdict.tensors) {
    tensors.push_back({{"tensor", error.tensor},
                       {"passed", error.passed},
                       {"checked", error.checked},
                       {"nonfinite", error.nonfinite},
                       {"max_abs", figure(error.max_abs)},
                       {"mean_abs", figure(error.mean_abs)},
                       {"ratio", figure(error.ratio)},
                       {"lambda", figure(error.lambda)},
                       {"rel_rms_err", optional_json(error.rel_rms_err)},
                       {"worst", error.worst}});
  }
  Json json{{"status", name(verdict.status)},
            {"sampled", verdict.sampled},
            {"checked_fraction", verdict.checked_fraction},
            {"reason", verdict.reason}};
  if (!verdict.coarse.empty()) json["coarse"] = verdict.coarse;
  if (verdict.recipe_cost) json["recipe_cost"] = recipe_cost_json(*verdict.recipe_cost);
  json["tensors"] = std::move(tensors);
  return json;
}

Json states_json(const std::vector<DeviceState>& states) {
  Json json{{"sm_mhz", Json::array()}, {"power_w", Json::array()}, {"reasons", Json::array()}};
  for (const DeviceState& state : states) {
    json["sm_mhz"].push_back(state.sm_mhz);
    json["power_w"].push_back(state.power_w);
    json["reasons"].push_back(state.throttle_reasons);
  }
  return json;
}

Json core_times_json(const std::vector<CoreTime>& times) {
  Json json{{"ran_s", Json::array()}, {"waited_s", Json::array()}};
  for (const CoreTime& time : times) {
    json["ran_s"].push_back(time.ran);
    json["waited_s"].push_back(time.waited);
  }
  return json;
}

Json load_json(const Load& load) {
  return {{"seconds", load.seconds},
          {"cores", load.cores},
          {"others_s", load.others},
          {"stolen_s", load.stolen},
          {"stalled_s", optional_json(load.stalled)}};
}

Json measurement_json(const Measurement& measurement) {
  Json json{{"cache", name(measurement.cache)},
            {"warmup_runs", measurement.warmup_runs},
            {"stop_reason", measurement.stop_reason},
            {"outliers", outliers(measurement.seconds)},
            {"samples_s", measurement.seconds}};
  if (measurement.host_seconds) {
    json["launch"] = {{"host_s", *measurement.host_seconds},
                      {"graph_nodes", measurement.graph_nodes}};
  }
  if (!measurement.states.empty()) json["states"] = states_json(measurement.states);
  if (!measurement.core_times.empty()) json["cores"] = core_times_json(measurement.core_times);
  if (measurement.load) json["load"] = load_json(*measurement.load);
  if (!measurement.samples_per_process.empty()) {
    json["samples_per_process"] = measurement.samples_per_process;
  }
  return json;
}

Json energy_json(const Energy& energy) {
  return {{"joules_per_run", energy.joules_per_run()},
          {"joules", energy.joules},
          {"seconds", energy.seconds},
          {"seconds_per_run", energy.seconds_per_run}};
}

Json performance_json(const Record& record, const std::vector<Record>& all) {
  const auto figures = performance(record);
  if (!figures) return {};
  Json json{{"median_ms", figures->median * 1e3},
            {"ci95_low_ms", Json()},
            {"ci95_high_ms", Json()},
            {"min_ms", figures->min * 1e3},
            {"tflops", figures->flops_per_second * 1e-12},
            {"tflops_convention", figures->convention_flops_per_second * 1e-12},
            {"share_of_ceiling", optional_json(share_of_ceiling(record, all))},
            {"speedup_vs_naive", optional_json(speedup_vs_naive(record, all))}};
  if (figures->interval) {
    json["ci95_low_ms"] = figures->interval->low * 1e3;
    json["ci95_high_ms"] = figures->interval->high * 1e3;
  }
  json["measurement"] = measurement_json(*record.measurement);
  if (record.energy) json["energy"] = energy_json(*record.energy);
  if (record.gemm) {
    json["gemm_ceiling"] = measurement_json(*record.gemm);
    json["gemm_ceiling"]["flops"] = record.gemm_flops;
  }
  for (const PartTime& part : record.parts) {
    json["parts"][std::string(name(part.part))] = measurement_json(part.measurement);
  }
  for (const Ceiling& ceiling : record.round_ceilings) {
    json["round_ceilings"].push_back(ceiling_to_json(ceiling));
  }
  return json;
}

Json memory_json(const Record& record) {
  if (!record.memory) return {};
  const MemoryUsage& tracked = record.memory->tracked;
  return {{"peak_bytes", tracked.total()},
          {"input_bytes", tracked.input},
          {"output_bytes", tracked.output},
          {"workspace_bytes", tracked.workspace},
          {"process_growth_bytes", record.memory->process_growth}};
}

Json group_json(const GroupReport& group) {
  Json json{{"rank_s", group.rank_seconds},
            {"sent_bytes", group.sent_bytes},
            {"everything_s", group.everything},
            {"computing_s", group.computing},
            {"copying_s", group.copying}};
  if (group.shares_gpus) json["shares_gpus"] = true;
  if (group.gpus_at_work > 1) json["gpus_at_work"] = group.gpus_at_work;
  return json;
}

Json schedule_json(const Schedule& schedule) {
  return {{"splits", schedule.splits},
          {"workers", schedule.workers},
          {"partial_bytes", schedule.partial_bytes},
          {"imbalance", schedule.imbalance}};
}

Json wall_json(const WallTime& wall) {
  Json json = Json::object();
  for (const auto& [phase, seconds] : wall.phases()) json[phase] = seconds;
  return json;
}

Json values_json(const CounterValues& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = value;
  return json;
}

Json traffic_json(const Record& record) {
  const auto measured = record.counters ? measured_bytes(*record.counters) : std::nullopt;
  Json json{{"bytes_compulsory", record.item.problem.compulsory_bytes()},
            {"bytes_requested", optional_json(record.requested_bytes)},
            {"bytes_measured", optional_json(measured)},
            {"intensity", optional_json(arithmetic_intensity(record))}};
  if (record.counters) json["counters"] = counter_report_to_json(*record.counters);
  return json;
}

Json work_json(const Record& record) {
  const Problem& p = record.item.problem;
  Json json{{"flops", p.flops()}, {"flops_convention", p.flops_convention()}};
  if (const auto tensor = tensor_operations(record)) {
    json["tensor_operations"] = {
        {"counted", tensor->counted}, {"over_flops", tensor->ratio}, {"verdict", tensor->verdict}};
  }
  return json;
}

// Adds the fields that depend on the rest of the result: on the device, and the notes on both.
void add_what_the_result_tells(Json& row, const Record& record, const SweepResult& result) {
  if (const auto share = share_of_peak(record, result)) {
    row["performance"]["share_of_peak"] = *share;
  }
  if (const auto said = notes(record, result); !said.empty()) row["notes"] = said;
}

}  // namespace

nlohmann::ordered_json kernels_to_json(const std::vector<KernelFacts>& kernels) {
  Json list = Json::array();
  for (const KernelFacts& kernel : kernels) {
    list.push_back({{"name", kernel.name},
                    {"blocks", kernel.blocks},
                    {"threads", kernel.threads},
                    {"registers", kernel.registers},
                    {"static_shared_bytes", kernel.static_shared_bytes},
                    {"dynamic_shared_bytes", kernel.dynamic_shared_bytes},
                    {"local_bytes", kernel.local_bytes},
                    {"blocks_per_multiprocessor", kernel.blocks_per_multiprocessor}});
  }
  return list;
}

Json case_to_json(const Case& item) {
  Json json;
  for (const Axis& axis : axes()) {
    if (axis.is_mentioned(item)) json[std::string(axis.name)] = axis.get(item);
  }
  if (item.inputs.distribution == Distribution::files) {
    json["files"] = {
        {"q", item.inputs.q}, {"k", item.inputs.k}, {"v", item.inputs.v}, {"d_o", item.inputs.d_o}};
  }
  return json;
}

Json counter_state_to_json(const CounterState& state) {
  return {{"status", name(state.status)},
          {"code", state.code},
          {"reason", state.reason},
          {"chip", state.chip},
          {"cupti", state.cupti}};
}

Json counter_report_to_json(const CounterReport& report) {
  Json json = counter_state_to_json(report.state);
  if (report.run.empty()) return json;
  json["cache"] = name(report.cache);
  json["passes"] = report.passes;
  json["run"] = values_json(report.run);
  if (!report.run_and_eviction.empty()) {
    json["run_and_eviction"] = values_json(report.run_and_eviction);
    json["eviction_bytes"] = report.eviction_bytes;
  }
  if (!report.launches.empty()) {
    json["launches"] = Json::array();
    for (const CounterValues& launch : report.launches) {
      json["launches"].push_back(values_json(launch));
    }
  }
  return json;
}

Json record_to_json(const Record& record, const std::vector<Record>& all) {
  Json json{{"key", record.item.key()},
            {"case", case_to_json(record.item)},
            {"provider", record.provider},
            {"kernel", record.kernel},
            {"status", name(record.status)},
            {"reason", record.reason},
            {"correctness", verdict_json(record.verdict)},
            {"performance", performance_json(record, all)},
            {"work", work_json(record)},
            {"traffic", traffic_json(record)},
            {"memory", memory_json(record)},
            {"repro", repro_command(record)}};
  if (record.plugin) {
    json["plugin"] = {{"path", record.plugin->path}, {"xxh3", record.plugin->xxh3}};
  }
  if (record.prepare_seconds) json["prepare_s"] = *record.prepare_seconds;
  if (record.plan_seconds) json["plan_s"] = *record.plan_seconds;
  if (record.schedule) json["schedule"] = schedule_json(*record.schedule);
  if (record.group) json["group"] = group_json(*record.group);
  if (!record.wall.phases().empty()) json["wall_s"] = wall_json(record.wall);
  if (!record.kernels.empty()) json["kernels"] = kernels_to_json(record.kernels);
  if (!record.accumulator.empty()) json["accumulator"] = record.accumulator;
  if (!record.output_dtype.empty()) json["output_dtype"] = record.output_dtype;
  if (!record.program.empty()) json["program"] = record.program;
  if (!record.source.empty()) json["source"] = record.source;
  if (record.determinism) json["determinism"] = determinism_json(*record.determinism);
  if (record.from_naive) {
    json["from_naive"] = {{"max_abs", record.from_naive->max_abs},
                          {"mean_abs", record.from_naive->mean_abs}};
  }
  return json;
}

Json ceiling_to_json(const Ceiling& ceiling) {
  Json json{{"name", ceiling.name},
            {"unit", ceiling.unit},
            {"description", ceiling.description},
            {"rate", ceiling.rate()},
            {"work", ceiling.work}};
  json["measurement"] = measurement_json(ceiling.measurement);
  if (!ceiling.source.empty()) json["source"] = ceiling.source;
  return json;
}

std::string to_json(const SweepResult& result) {
  Json json{{"schema_version", kSchemaVersion}, {"meta", result.meta},
            {"devices", result.devices},        {"config", result.config},
            {"ceilings", Json::array()},        {"results", Json::array()}};
  for (const Ceiling& ceiling : result.ceilings) {
    json["ceilings"].push_back(ceiling_to_json(ceiling));
  }
  for (const Record& record : result.records) {
    json["results"].push_back(record_to_json(record, result.records));
    add_what_the_result_tells(json["results"].back(), record, result);
  }
  return json.dump(1) + "\n";
}

}  // namespace flashbench
