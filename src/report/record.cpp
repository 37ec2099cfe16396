#include "report/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "measure/pipes.h"
#include "measure/round_ceilings.h"
#include "plan/axis.h"
#include "report/shell_word.h"

namespace flashbench {

namespace {

bool is_same_case(const Record& a, const Record& b) {
  return a.source == b.source && a.item == b.item;
}

// Returns the larger of two errors; an error that is not finite is larger than any other.
double worse(double a, double b) {
  return !std::isfinite(a) || b <= a ? a : b;
}

constexpr double kTensorTolerance = 0.02;
constexpr int64_t kLargestTile = 256;

// FLOPs of a request if every tile of kLargestTile queries and keys with any visible pair is
// computed as a whole, with head_dim rounded up to the next of 64, 128 and 256.
double tiled_flops(const Problem& p) {
  const auto up = [](int64_t length) { return (length + kLargestTile - 1) / kLargestTile; };
  int64_t tiles = 0;
  for (int64_t tile = 0; tile < up(p.q_len); ++tile) {
    const int64_t first_query = tile * kLargestTile;
    const RowRange keys{p.visible_keys(first_query).first,
                        p.visible_keys(std::min(first_query + kLargestTile, p.q_len) - 1).end};
    if (!keys.empty()) tiles += up(keys.end) - keys.first / kLargestTile;
  }
  const auto compiled = [](int64_t dim) {
    int64_t next = 64;
    while (next < dim) next *= 2;
    return next;
  };
  const int64_t dims = gemm_dims(p.pass, compiled(p.head_dim), compiled(p.value_dim()));
  return 2.0 * static_cast<double>(tiles * kLargestTile * kLargestTile) *
         static_cast<double>(dims) * static_cast<double>(p.q_heads);
}

// Another program has a GPU for each rank, and tells nothing of them.
int gpus_at_work(const Record& record) {
  if (record.group) return record.group->gpus_at_work;
  return record.program.empty() ? 1 : static_cast<int>(record.item.problem.gpus.value_or(1));
}

// Whether another axis of the case, which its command gives, sets this one.
bool is_set_by_another(const Axis& axis, const Case& item) {
  return std::any_of(axes().begin(), axes().end(), [&](const Axis& other) {
    return other.role != Axis::Role::shorthand && other.is_mentioned(item) &&
           std::find(other.sets.begin(), other.sets.end(), axis.name) != other.sets.end();
  });
}

// The time of a ceiling in the row's rounds, over that of the row.
std::optional<double> speedup_over(std::string_view ceiling, const Record& record) {
  const auto timed = performance(record);
  const Ceiling* beside = round_ceiling(record, ceiling);
  if (!timed || beside == nullptr) return std::nullopt;
  return median(beside->measurement.seconds) / timed->median;
}

}  // namespace

std::optional<Performance> performance(const Record& record) {
  if (!record.measurement || record.measurement->seconds.empty()) return std::nullopt;
  const std::vector<double>& seconds = record.measurement->seconds;
  Performance result;
  result.median = median(seconds);
  result.min = *std::min_element(seconds.begin(), seconds.end());
  result.interval = median_interval(seconds);
  result.flops_per_second = record.item.problem.flops() / result.median;
  result.convention_flops_per_second = record.item.problem.flops_convention() / result.median;
  return result;
}

void withdraw_times(Record& record) {
  record.measurement.reset();
  record.gemm.reset();
  record.parts.clear();
  record.round_ceilings.clear();
  record.group.reset();
}

const Ceiling* round_ceiling(const Record& record, std::string_view name) {
  const auto found = std::find_if(record.round_ceilings.begin(), record.round_ceilings.end(),
                                  [&](const Ceiling& ceiling) { return ceiling.name == name; });
  return found == record.round_ceilings.end() ? nullptr : &*found;
}

const Ceiling* measured_ceiling(const Record& record, std::string_view name,
                                const SweepResult& result) {
  const auto of = [&](const std::string& source) -> const Ceiling* {
    const auto found = std::ranges::find_if(result.ceilings, [&](const Ceiling& ceiling) {
      return ceiling.name == name && ceiling.source == source;
    });
    return found == result.ceilings.end() ? nullptr : &*found;
  };
  const Ceiling* own = of(record.source);
  return own != nullptr ? own : of("");
}

std::optional<double> measured_rate(const Record& record, std::string_view name,
                                    const SweepResult& result) {
  const Ceiling* ceiling = measured_ceiling(record, name, result);
  return ceiling != nullptr && ceiling->rate() > 0 ? std::optional(ceiling->rate()) : std::nullopt;
}

std::optional<double> if_possible(std::optional<double> share) {
  return share && *share <= kMostOverCeiling ? share : std::nullopt;
}

std::optional<double> over_gemm(const Record& record) {
  const auto timed = performance(record);
  if (!timed || !record.gemm || record.gemm->seconds.empty()) return std::nullopt;
  const double flops_of_gpu = timed->flops_per_second / gpus_at_work(record);
  return flops_of_gpu * median(record.gemm->seconds) / record.gemm_flops;
}

const Record* beyond_ceiling(const Record& record, const std::vector<Record>& all) {
  const Record* worst = nullptr;
  double worst_share = kMostOverCeiling;
  for (const Record& other : all) {
    if (!is_same_case(other, record)) continue;
    const double share = over_gemm(other).value_or(0);
    if (share <= worst_share) continue;
    worst = &other;
    worst_share = share;
  }
  return worst;
}

std::optional<double> share_of_ceiling(const Record& record, const std::vector<Record>& all) {
  return beyond_ceiling(record, all) == nullptr ? over_gemm(record) : std::nullopt;
}

std::optional<double> over_pipe(const Record& record, const SweepResult& result) {
  if (result.devices.empty()) return std::nullopt;
  const auto& device = result.devices.at(0);
  const std::string architecture = device.value("instructions", std::string());  // "sm_90"
  if (!architecture.starts_with("sm_")) return std::nullopt;
  const Problem& p = record.item.problem;
  const Dtype of_products = p.is_quantized() ? Dtype::e4m3 : p.dtype;
  const auto flops = pipe_flops_per_clock(of_products, std::atoi(architecture.c_str() + 3));
  const int multiprocessors = device.value("threads", 0);
  if (!flops || multiprocessors <= 0) return std::nullopt;
  const auto timed = performance(record);
  const auto sm_mhz = median_state(record, &DeviceState::sm_mhz);
  if (!timed || !sm_mhz || !(*sm_mhz > 0)) return std::nullopt;
  const double flops_of_gpu = timed->flops_per_second / gpus_at_work(record);
  return flops_of_gpu / (*flops * multiprocessors * *sm_mhz * 1e6);
}

std::optional<double> share_of_peak(const Record& record, const SweepResult& result) {
  const auto share = over_pipe(record, result);
  return share && *share <= 1 ? share : std::nullopt;
}

std::optional<double> median_state(const Record& record, double DeviceState::*member) {
  return record.measurement ? median_state(*record.measurement, member) : std::nullopt;
}

std::optional<double> throttled_share(const Record& record) {
  if (!record.measurement || record.measurement->states.empty()) return std::nullopt;
  const std::vector<DeviceState>& states = record.measurement->states;
  const auto held = std::count_if(states.begin(), states.end(), [](const DeviceState& state) {
    return (state.throttle_reasons & DeviceState::kSlowing) != 0;
  });
  return static_cast<double>(held) / static_cast<double>(states.size());
}

double GroupReport::skew() const {
  if (rank_seconds.empty()) return 0;
  const double sum = std::accumulate(rank_seconds.begin(), rank_seconds.end(), 0.0);
  const double slowest = *std::ranges::max_element(rank_seconds);
  return slowest * static_cast<double>(rank_seconds.size()) / sum - 1;
}

double GroupReport::exposed() const {
  return std::max(0.0, everything - computing);
}

std::optional<double> GroupReport::overlap() const {
  if (!(copying > 0)) return std::nullopt;
  return 1 - exposed() / copying;
}

// nccl-tests: busbw = S / t (P - 1) / P, where S is the whole buffer of an all-gather,
// reduce-scatter or all-to-all of P ranks. S (P - 1) / P is what a rank sends to others.
std::optional<double> GroupReport::bus_bandwidth() const {
  if (!(copying > 0) || sent_bytes.empty()) return std::nullopt;
  return static_cast<double>(*std::ranges::max_element(sent_bytes)) / copying;
}

std::optional<double> strong_efficiency(const Record& record, const std::vector<Record>& all) {
  const auto timed = performance(record);
  if (!record.group || !timed || !record.item.problem.gpus) return std::nullopt;
  if (record.group->shares_gpus) return std::nullopt;
  for (const Record& other : all) {
    if (other.provider != "tiled" || !is_same_case(other, record)) continue;
    const auto one = performance(other);
    if (!one) return std::nullopt;
    return one->median / (static_cast<double>(*record.item.problem.gpus) * timed->median);
  }
  return std::nullopt;
}

std::optional<double> same_work_efficiency(const Record& record) {
  return record.group ? speedup_over(kSameWork, record) : std::nullopt;
}

std::optional<double> speedup_vs_unrounded(const Record& record) {
  return speedup_over(kUnrounded, record);
}

std::optional<double> speedup_vs_naive(const Record& record, const std::vector<Record>& all) {
  const auto own = performance(record);
  if (!own) return std::nullopt;
  for (const Record& other : all) {
    if (other.provider != "naive" || !is_same_case(other, record)) continue;
    if (const auto naive = performance(other)) return naive->median / own->median;
  }
  return std::nullopt;
}

std::optional<double> arithmetic_intensity(const Record& record) {
  const auto measured = record.counters ? measured_bytes(*record.counters) : std::nullopt;
  const auto bytes = measured ? measured : record.requested_bytes;
  if (!bytes || *bytes <= 0) return std::nullopt;
  return record.item.problem.flops() / static_cast<double>(*bytes);
}

std::optional<TensorOperations> tensor_operations(const Record& record) {
  const Problem& p = record.item.problem;
  const auto counted =
      record.counters ? total(record.counters->run, Counted::tensor) : std::nullopt;
  if (!counted || p.dtype == Dtype::fp32) return std::nullopt;
  TensorOperations result{*counted, *counted / p.flops(), "as_claimed"};
  if (*counted < (1 - kTensorTolerance) * p.flops()) result.verdict = "fewer";
  if (*counted > (1 + kTensorTolerance) * p.sum_of_requests(tiled_flops)) result.verdict = "more";
  return result;
}

std::optional<WorstError> worst_error(const Verdict& verdict) {
  if (verdict.tensors.empty()) return std::nullopt;
  WorstError worst;
  for (const TensorError& error : verdict.tensors) {
    worst.max_abs = worse(worst.max_abs, error.max_abs);
    worst.ratio = worse(worst.ratio, error.ratio);
    worst.lambda = worse(worst.lambda, error.lambda);
    if (error.rel_rms_err) worst.rel_rms = worse(worst.rel_rms.value_or(0), *error.rel_rms_err);
  }
  return worst;
}

std::string_view verified(const Verdict& verdict) {
  if (verdict.passed() && !verdict.coarse.empty()) return "coarse";
  if (verdict.passed() && verdict.sampled) return "sampled";
  return name(verdict.status);
}

std::string repro_command(const Record& record) {
  const InputSpec& inputs = record.item.inputs;
  const bool files = inputs.distribution == Distribution::files;
  std::string command = "flashbench run";
  const auto add = [&](std::string_view option, std::string_view value) {
    command += fmt::format(" {} {}", option, shell_word(value));
  };
  if (!record.program.empty()) add("--program", record.program);
  add("--providers", record.provider);
  if (record.plugin) add("--plugin", argument(*record.plugin));
  for (const Axis& axis : axes()) {
    const bool of_files = files && (axis.name == "distribution" || axis.name == "seed");
    if (of_files || !axis.is_mentioned(record.item) || axis.get(record.item).is_null()) continue;
    if (is_set_by_another(axis, record.item)) continue;
    add(axis.option(), axis.argument(record.item));
  }
  if (files) {
    add("--q", inputs.q);
    add("--k", inputs.k);
    add("--v", inputs.v);
    if (record.item.problem.pass == Pass::backward) add("--do", inputs.d_o);
  }
  return command;
}

}  // namespace flashbench
