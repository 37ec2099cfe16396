#include <fmt/format.h>

#include "attention/error.h"
#include "files/gzip.h"
#include "files/read_file.h"
#include "measure/sample_bounds.h"
#include "plan/axis.h"
#include "plan/json_text.h"
#include "plan/strict_json.h"
#include "report/csv.h"
#include "report/json.h"
#include "report/result_checks.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostCounted = 9e18;  // fits an int64_t
constexpr double kLeastDivisible = 1e-30, kMostDivisible = 1e30;

constexpr JsonLimits kResultLimits{
    .bytes = size_t{256} << 20, .depth = 64, .text = size_t{1} << 20};

template <typename T>
std::optional<T> optional_from(const StrictJson& json) {
  if (json.is_null()) return std::nullopt;
  return T{json};
}

template <typename T>
std::optional<T> optional_with(T (*read)(const StrictJson&), const StrictJson& json) {
  return json.is_null() ? std::nullopt : std::optional<T>(read(json));
}

Determinism determinism_from(const StrictJson& json) {
  return {named<Determinism::Kind>(json.at("kind")), json.at("runs"),
          not_negative_or_nan(json.at("max_lambda"))};
}

Rmse rmse_from(const StrictJson& json) {
  return {not_negative_or_nan(json.at("rmse")), optional_from<double>(json.at("low")),
          optional_from<double>(json.at("high"))};
}

RecipeCost recipe_cost_from(const StrictJson& json) {
  RecipeCost cost;
  cost.total = rmse_from(json.at("total"));
  cost.quant = rmse_from(json.at("quant"));
  cost.kernel = rmse_from(json.at("kernel"));
  cost.rms_o = not_negative_or_nan(json.at("rms_o"));
  cost.storing = not_negative_or_nan(json.at("storing"));
  cost.heads = json.at("heads");
  cost.elements = json.at("elements");
  return cost;
}

Verdict verdict_from(const StrictJson& json) {
  Verdict verdict;
  verdict.status = named<Verdict::Status>(json.at("status"));
  verdict.sampled = json.at("sampled");
  verdict.checked_fraction = json.at("checked_fraction");
  if (!(verdict.checked_fraction >= 0 && verdict.checked_fraction <= 1)) {
    json.at("checked_fraction").fail("a share from 0 to 1");
  }
  verdict.reason = json.at("reason");
  if (json.contains("coarse")) verdict.coarse = json.at("coarse");
  if (json.contains("recipe_cost")) verdict.recipe_cost = recipe_cost_from(json.at("recipe_cost"));
  for (const StrictJson& tensor : json.at("tensors").elements()) {
    TensorError error;
    error.tensor = tensor.at("tensor");
    error.passed = tensor.at("passed");
    error.checked = count(tensor.at("checked"));
    error.nonfinite = count(tensor.at("nonfinite"));
    error.max_abs = not_negative_or_nan(tensor.at("max_abs"));
    error.mean_abs = not_negative_or_nan(tensor.at("mean_abs"));
    error.ratio = not_negative_or_nan(tensor.at("ratio"));
    error.lambda = not_negative_or_nan(tensor.at("lambda"));
    error.worst = tensor.at("worst");
    if (tensor.contains("rel_rms_err")) {
      error.rel_rms_err = optional_with(not_negative, tensor.at("rel_rms_err"));
    }
    verdict.tensors.push_back(std::move(error));
  }
  return verdict;
}

std::vector<DeviceState> states_from(const StrictJson& json, size_t samples) {
  const std::vector<double> sm_mhz = json.at("sm_mhz"), power_w = json.at("power_w");
  const std::vector<uint64_t> reasons = json.at("reasons");
  if (sm_mhz.size() != samples || power_w.size() != samples || reasons.size() != samples) {
    json.fail("a value for each of samples_s");
  }
  std::vector<DeviceState> states;
  for (size_t i = 0; i < samples; ++i) states.push_back({sm_mhz[i], power_w[i], reasons[i]});
  return states;
}

std::vector<CoreTime> core_times_from(const StrictJson& json, size_t samples) {
  const std::vector<double> ran = json.at("ran_s"), waited = json.at("waited_s");
  if (ran.size() != samples || waited.size() != samples) json.fail("a value for each of samples_s");
  std::vector<CoreTime> times;
  for (size_t i = 0; i < samples; ++i) {
    if (!(ran[i] >= 0 && waited[i] >= 0)) json.fail("times that are not negative");
    times.push_back({ran[i], waited[i]});
  }
  return times;
}

Load load_from(const StrictJson& json) {
  const Load load{json.at("seconds"), json.at("cores"), json.at("others_s"), json.at("stolen_s"),
                  optional_from<double>(json.at("stalled_s"))};
  if (!(load.seconds > 0 && load.cores > 0)) json.fail("seconds and cores above 0");
  if (!(load.others >= 0 && load.stolen >= 0 && load.stalled.value_or(0) >= 0)) {
    json.fail("times that are not negative");
  }
  return load;
}

CacheState cache_from(const StrictJson& json) {
  return named<CacheState>(json);
}

Measurement measurement_from(const StrictJson& json) {
  Measurement measurement;
  measurement.cache = cache_from(json.at("cache"));
  measurement.warmup_runs = json.at("warmup_runs");
  if (measurement.warmup_runs < 0) json.at("warmup_runs").fail("an integer of at least 0");
  measurement.stop_reason = json.at("stop_reason");
  measurement.seconds = json.at("samples_s");
  for (double seconds : measurement.seconds) {
    if (!(seconds >= kShortestSample && seconds <= kLongestSample)) {
      throw std::invalid_argument(fmt::format("samples_s: expected from {} to {} seconds, found {}",
                                              kShortestSample, kLongestSample, seconds));
    }
  }
  if (json.contains("launch")) {
    measurement.host_seconds = not_negative(json.at("launch").at("host_s"));
    measurement.graph_nodes = json.at("launch").at("graph_nodes");
  }
  if (json.contains("states")) {
    measurement.states = states_from(json.at("states"), measurement.seconds.size());
  }
  if (json.contains("cores")) {
    measurement.core_times = core_times_from(json.at("cores"), measurement.seconds.size());
  }
  if (json.contains("load")) measurement.load = load_from(json.at("load"));
  if (json.contains("samples_per_process")) {
    measurement.samples_per_process = json.at("samples_per_process");
    int64_t sum = 0;
    for (int samples : measurement.samples_per_process) {
      if (samples < 1) throw std::invalid_argument("samples_per_process must be positive");
      sum += samples;
    }
    if (sum != static_cast<int64_t>(measurement.seconds.size())) {
      throw std::invalid_argument("samples_per_process must add up to the number of samples_s");
    }
  }
  return measurement;
}

// Reads a value that is used as a divisor: positive, and in a range in which division is safe.
double divisible(const StrictJson& json) {
  const double value = json;
  if (!(value >= kLeastDivisible && value <= kMostDivisible))
    json.fail("a figure that was measured");
  return value;
}

Energy energy_from(const StrictJson& json) {
  return {not_negative(json.at("joules")), divisible(json.at("seconds")),
          divisible(json.at("seconds_per_run"))};
}

std::vector<KernelFacts> kernels_from(const StrictJson& json) {
  std::vector<KernelFacts> kernels;
  for (const StrictJson& kernel : json.elements()) {
    kernels.push_back({.name = kernel.at("name"),
                       .blocks = kernel.at("blocks"),
                       .threads = kernel.at("threads"),
                       .registers = kernel.at("registers"),
                       .static_shared_bytes = kernel.at("static_shared_bytes"),
                       .dynamic_shared_bytes = kernel.at("dynamic_shared_bytes"),
                       .local_bytes = kernel.at("local_bytes"),
                       .blocks_per_multiprocessor = kernel.at("blocks_per_multiprocessor")});
  }
  return kernels;
}

GroupReport group_from(const StrictJson& json) {
  GroupReport group{{},
                    {},
                    divisible(json.at("everything_s")),
                    divisible(json.at("computing_s")),
                    divisible(json.at("copying_s"))};
  if (json.contains("shares_gpus")) group.shares_gpus = json.at("shares_gpus");
  if (json.contains("gpus_at_work")) group.gpus_at_work = json.at("gpus_at_work");
  for (const StrictJson& seconds : json.at("rank_s").elements()) {
    group.rank_seconds.push_back(divisible(seconds));
  }
  for (const StrictJson& bytes : json.at("sent_bytes").elements()) {
    group.sent_bytes.push_back(byte_count(bytes));
  }
  return group;
}

Schedule schedule_from(const StrictJson& json) {
  return {json.at("splits"), json.at("workers"), byte_count(json.at("partial_bytes")),
          not_negative(json.at("imbalance"))};
}

WallTime wall_from(const StrictJson& json) {
  if (!json.json().is_object()) json.fail("an object");
  WallTime wall;
  for (const auto& [phase, value] : json.json().items())
    wall.add(phase, not_negative(json.at(phase.c_str())));
  return wall;
}

CounterValues values_from(const StrictJson& json) {
  if (!json.json().is_object()) json.fail("an object");
  CounterValues values;
  for (const auto& [name, value] : json.json().items()) {
    const double count = json.at(name.c_str());
    if (!(count >= 0 && count < kMostCounted)) json.at(name.c_str()).fail("a count");
    values.emplace_back(name, count);
  }
  return values;
}

// Reads each element of array `name`; errors say which element is wrong.
template <typename T>
std::vector<T> read_all(const StrictJson& json, const char* name, T (*read)(const Json&)) {
  std::vector<T> values;
  for (const StrictJson& element : json.at(name).elements()) {
    try {
      values.push_back(read(element.json()));
    } catch (const std::exception& error) {
      throw std::invalid_argument(fmt::format("/{}/{}: {}", name, values.size(), error.what()));
    }
  }
  return values;
}

// An axis that sets others says the same of them as they do.
void require_agreement(const Case& item, const StrictJson& json) {
  for (const Axis& setting : axes()) {
    if (setting.role == Axis::Role::shorthand || !setting.is_mentioned(item)) continue;
    for (const std::string_view set : setting.sets) {
      const std::string name(set);
      if (!json.contains(name.c_str())) continue;
      const StrictJson said = json.at(name.c_str());
      if (const Json value = axis(set).get(item); said.json() != value) {
        said.fail(fmt::format("{}, as {} has it", value.dump(), setting.name));
      }
    }
  }
}

std::vector<PartTime> parts_from(const StrictJson& json) {
  std::vector<PartTime> parts;
  for (const auto& [part, text] : kNames<RunPart>) {
    if (!json.contains(text.data())) continue;
    parts.push_back({part, measurement_from(json.at(text.data()))});
  }
  return parts;
}

}  // namespace

Case case_from_json(const Json& document) {
  const StrictJson json(document);
  Case item;
  for (const Axis& axis : axes()) {
    if (axis.role == Axis::Role::shorthand) continue;
    const std::string name(axis.name);
    if (axis.role == Axis::Role::optional && !json.contains(name.c_str())) continue;
    axis.set(item, json.at(name.c_str()));
  }
  require_agreement(item, json);
  if (const auto wrong = item.problem.invalid()) throw std::invalid_argument(*wrong);
  require_countable(item.problem);
  if (item.inputs.distribution == Distribution::files) {
    const StrictJson files = json.at("files");
    item.inputs.q = files.at("q");
    item.inputs.k = files.at("k");
    item.inputs.v = files.at("v");
    item.inputs.d_o = files.at("d_o");
  }
  return item;
}

CounterState counter_state_from_json(const Json& document) {
  const StrictJson json(document);
  return {.status = named<CounterStatus>(json.at("status")),
          .code = json.at("code"),
          .reason = json.at("reason"),
          .chip = json.at("chip"),
          .cupti = json.at("cupti")};
}

CounterReport counter_report_from_json(const Json& document) {
  const StrictJson json(document);
  CounterReport report;
  report.state = counter_state_from_json(document);
  if (!json.contains("run")) return report;
  report.cache = cache_from(json.at("cache"));
  report.passes = json.at("passes");
  report.run = values_from(json.at("run"));
  if (json.contains("run_and_eviction")) {
    report.run_and_eviction = values_from(json.at("run_and_eviction"));
    report.eviction_bytes = json.at("eviction_bytes");
  }
  if (json.contains("launches")) {
    for (const StrictJson& launch : json.at("launches").elements()) {
      report.launches.push_back(values_from(launch));
    }
  }
  return report;
}

Record record_from_json(const Json& document) {
  const StrictJson json(document);
  Record record;
  record.item = case_from_json(json.at("case").json());
  if (const std::string key = json.at("key"); key != record.item.key()) {
    json.at("key").fail("the key of its case, " + record.item.key());
  }
  record.provider = printable(json.at("provider"));
  if (json.contains("plugin")) {
    const StrictJson plugin = json.at("plugin");
    if (!is_plugin(record.provider)) json.at("provider").fail("plugin:NAME");
    record.plugin = PluginFile{record.provider, plugin.at("path"), plugin.at("xxh3")};
  }
  if (json.contains("program")) record.program = json.at("program");
  if (json.contains("source")) record.source = json.at("source");
  record.kernel = printable(json.at("kernel"));
  record.status = named<Status>(json.at("status"));
  record.reason = printable(json.at("reason"), /*lines=*/true);
  record.verdict = verdict_from(json.at("correctness"));
  if (json.contains("accumulator")) record.accumulator = json.at("accumulator");
  if (json.contains("output_dtype")) record.output_dtype = json.at("output_dtype");
  if (json.contains("prepare_s")) record.prepare_seconds = not_negative(json.at("prepare_s"));
  if (json.contains("plan_s")) record.plan_seconds = not_negative(json.at("plan_s"));
  if (json.contains("schedule")) record.schedule = schedule_from(json.at("schedule"));
  if (json.contains("group")) record.group = group_from(json.at("group"));
  if (json.contains("wall_s")) record.wall = wall_from(json.at("wall_s"));
  if (json.contains("determinism")) record.determinism = determinism_from(json.at("determinism"));
  if (json.contains("from_naive")) {
    const StrictJson distance = json.at("from_naive");
    record.from_naive =
        Distance{not_negative(distance.at("max_abs")), not_negative(distance.at("mean_abs"))};
  }
  if (const StrictJson timed = json.at("performance"); !timed.is_null()) {
    record.measurement = measurement_from(timed.at("measurement"));
    if (record.measurement->seconds.empty()) {
      timed.at("measurement").at("samples_s").fail("at least one sample");
    }
    if (timed.contains("energy")) record.energy = energy_from(timed.at("energy"));
    if (timed.contains("gemm_ceiling")) {
      record.gemm = measurement_from(timed.at("gemm_ceiling"));
      record.gemm_flops = divisible(timed.at("gemm_ceiling").at("flops"));
    }
    if (timed.contains("parts")) record.parts = parts_from(timed.at("parts"));
    if (timed.contains("round_ceilings")) {
      record.round_ceilings = read_all(timed, "round_ceilings", ceiling_from_json);
    }
  }
  if (json.contains("kernels")) record.kernels = kernels_from(json.at("kernels"));
  const StrictJson traffic = json.at("traffic");
  record.requested_bytes = optional_with(byte_count, traffic.at("bytes_requested"));
  if (traffic.contains("counters")) {
    record.counters = counter_report_from_json(traffic.at("counters").json());
  }
  if (const StrictJson memory = json.at("memory"); !memory.is_null()) {
    record.memory = MemoryReport{{.input = byte_count(memory.at("input_bytes")),
                                  .output = byte_count(memory.at("output_bytes")),
                                  .workspace = byte_count(memory.at("workspace_bytes"))},
                                 memory.at("process_growth_bytes")};
  }
  require_verified(record, json);
  return record;
}

Ceiling ceiling_from_json(const Json& document) {
  const StrictJson json(document);
  Ceiling ceiling{json.at("name"), json.at("unit"), json.at("description"),
                  divisible(json.at("work")), measurement_from(json.at("measurement"))};
  if (json.contains("source")) ceiling.source = json.at("source");
  return ceiling;
}

Json parse_strictly(std::string_view text) {
  JsonText parsed = parse_json(text, kResultLimits);
  if (!parsed.issues.empty()) {
    const ConfigIssue& issue = parsed.issues.front();
    throw std::invalid_argument(issue.pointer.empty() ? issue.message
                                                      : issue.pointer + ": " + issue.message);
  }
  return std::move(*parsed.value);
}

SweepResult result_from_json(std::string_view text, const std::string& source) {
  try {
    const Json document = printable_texts(parse_strictly(text));
    const StrictJson json(document);
    if (const StrictJson version = json.at("schema_version"); version.json() != kSchemaVersion) {
      version.fail(std::to_string(kSchemaVersion));
    }
    require_environment(json);
    SweepResult result;
    result.meta = json.at("meta").json();
    result.devices = json.at("devices").json();
    result.config = json.at("config").json();
    result.ceilings = read_all(json, "ceilings", ceiling_from_json);
    result.records = read_all(json, "results", record_from_json);
    require_distinct(result.records);
    require_rows_of_sweep(json.at("meta"), result.records);
    return result;
  } catch (const std::exception& error) {
    throw FileError(
        fmt::format("{}: not a flashbench result file: {}", source, printable(error.what())));
  }
}

namespace {

// The end of a sentence about a CSV: the result beside it, if there is one.
std::string result_beside(const std::filesystem::path& csv) {
  for (const char* extension : {".json", ".json.gz"}) {
    const auto result = std::filesystem::path(csv).replace_extension(extension);
    if (std::filesystem::exists(result)) return fmt::format("; did you mean {}?", result.string());
  }
  return "";
}

}  // namespace

SweepResult read_result(const std::filesystem::path& path) {
  std::string text = read_file(path, kResultLimits.bytes);
  if (is_gzip(text)) text = gunzip(text, kResultLimits.bytes, path.string());
  if (is_csv(text)) {
    throw FileError(fmt::format("{}: expected a result file (JSON), found a CSV{}", path.string(),
                                result_beside(path)));
  }
  return result_from_json(text, path.string());
}

}  // namespace flashbench
