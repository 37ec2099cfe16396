#include "report/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "measure/round_ceilings.h"
#include "plan/axis.h"
#include "report/json.h"
#include "report/memory_bound.h"
#include "report/notes.h"
#include "report/run_parts.h"

namespace flashbench {

namespace {

std::string figure(std::optional<double> value) {
  return value && std::isfinite(*value) ? fmt::format("{:.6g}", *value) : "";
}

std::string percent_column(std::optional<double> share) {
  return share ? figure(*share * 100) : "";
}

std::string count(std::optional<int64_t> value) {
  return value ? fmt::format("{}", *value) : "";
}

Column text(std::string_view name, std::function<std::string(const Record&)> value) {
  return {name, true, [value = std::move(value)](const Record& record, const SweepResult&) {
            return value(record);
          }};
}

Column optional_text(std::string_view name, std::function<std::string(const Record&)> value) {
  Column column = text(name, std::move(value));
  column.optional = true;
  return column;
}

Column number(std::string_view name, std::function<std::string(const Record&)> value) {
  return {name, false, [value = std::move(value)](const Record& record, const SweepResult&) {
            return value(record);
          }};
}

Column optional_number(std::string_view name, std::function<std::string(const Record&)> value) {
  Column column = number(name, std::move(value));
  column.optional = true;
  return column;
}

// An axis of the case; an optional one is left out where all rows have its default.
Column axis_column(const Axis& axis) {
  return {axis.name, axis.names() != nullptr,
          [&axis](const Record& r, const SweepResult&) {
            return axis.is_mentioned(r.item) ? axis.text(r.item) : std::string();
          },
          axis.role == Axis::Role::optional};
}

Column axis_column(std::string_view name) {
  return axis_column(axis(name));
}

Column timing(std::string_view name, std::optional<double> (*value)(const Performance&)) {
  return number(name, [value](const Record& record) {
    const auto result = performance(record);
    return result ? figure(value(*result)) : "";
  });
}

Column error(std::string_view name, double WorstError::*member) {
  return number(name, [member](const Record& record) {
    const auto worst = worst_error(record.verdict);
    return worst ? figure((*worst).*member) : "";
  });
}

// A column from the counter report.
Column counted(std::string_view name, std::optional<int64_t> (*value)(const CounterReport&)) {
  return number(name, [value](const Record& r) {
    return r.counters ? count(value(*r.counters)) : std::string();
  });
}

// A column with the total of a range: the run, or the run and what it left in the L2.
Column counted(std::string_view name, CounterValues CounterReport::*range, Counted what) {
  return optional_number(name, [range, what](const Record& r) {
    const auto sum = r.counters ? total((*r.counters).*range, what) : std::nullopt;
    return sum ? count(std::llround(*sum)) : std::string();
  });
}

std::string in_us(std::optional<double> seconds) {
  return seconds ? figure(*seconds * 1e6) : "";
}
std::string in_us(const Ceiling* ceiling) {
  return ceiling == nullptr ? "" : in_us(median(ceiling->measurement.seconds));
}

Column scheduled(std::string_view name, int64_t Schedule::*member) {
  return optional_number(name, [member](const Record& r) {
    return r.schedule ? count((*r.schedule).*member) : std::string();
  });
}

// A figure of several devices that shared the work.
Column of_group(std::string_view name, std::string (*text)(const GroupReport&)) {
  return optional_number(
      name, [text](const Record& r) { return r.group ? text(*r.group) : std::string(); });
}

// What a recipe costs; also relative to the root mean square of O.
template <typename Of>
Column cost_column(std::string_view name, Of of) {
  return optional_number(name, [of](const Record& r) {
    return r.verdict.recipe_cost ? figure(of(*r.verdict.recipe_cost)) : std::string();
  });
}
template <typename Figure>
Column rmse(std::string_view name, Rmse RecipeCost::*which, Figure Rmse::*figure_of) {
  return cost_column(name, [=](const RecipeCost& cost) -> std::optional<double> {
    return (cost.*which).*figure_of;
  });
}
Column rel_rmse(std::string_view name, Rmse RecipeCost::*which) {
  return cost_column(name, [=](const RecipeCost& cost) -> std::optional<double> {
    if (!(cost.rms_o > 0)) return std::nullopt;
    return (cost.*which).value / cost.rms_o;
  });
}

// "1.25 1.3": of each device, in the order of their numbers.
std::string per_device_ms(const Record& r) {
  if (!r.group) return "";
  std::vector<std::string> texts;
  for (double seconds : r.group->rank_seconds) texts.push_back(figure(seconds * 1e3));
  return fmt::format("{}", fmt::join(texts, " "));
}

std::optional<double> in_ms(const std::optional<Interval>& interval, double Interval::*end) {
  if (!interval) return std::nullopt;
  return (*interval).*end * 1e3;
}

// Axes that have no place among the columns yet come last.
void add_other_axes(std::vector<Column>& columns) {
  for (const Axis& axis : axes()) {
    const bool there = std::any_of(columns.begin(), columns.end(),
                                   [&](const Column& column) { return column.name == axis.name; });
    if (!there && axis.role != Axis::Role::shorthand) columns.push_back(axis_column(axis));
  }
}

std::vector<Column> make_columns() {
  using P = const Performance&;
  using R = const Record&;
  std::vector<Column> columns{
      number("schema", [](R) { return fmt::format("{}", kSchemaVersion); }),
      text("provider", [](R r) { return r.provider; }),
      text("kernel", [](R r) { return r.kernel; }),
      {"device", true,
       [](R, const SweepResult& all) { return all.devices.at(0).value("name", std::string()); }},
      axis_column("pass"),
      axis_column("dtype"),
      axis_column("mask"),
      axis_column("batch"),
      axis_column("q_heads"),
      axis_column("kv_heads"),
      axis_column("q_len"),
      axis_column("kv_len"),
      axis_column("head_dim"),
      text("status", [](R r) { return std::string(name(r.status)); }),
      text("reason", [](R r) { return r.reason; }),
      text("verified", [](R r) { return std::string(verified(r.verdict)); }),
      error("max_abs_err", &WorstError::max_abs),
      error("err_ratio", &WorstError::ratio),
      error("lambda", &WorstError::lambda),
      timing("median_ms", [](P p) -> std::optional<double> { return p.median * 1e3; }),
      timing("ci_low_ms", [](P p) { return in_ms(p.interval, &Interval::low); }),
      timing("ci_high_ms", [](P p) { return in_ms(p.interval, &Interval::high); }),
      timing("min_ms", [](P p) -> std::optional<double> { return p.min * 1e3; }),
      number("samples",
             [](R r) {
               if (!r.measurement) return std::string();
               return fmt::format("{}", r.measurement->seconds.size());
             }),
      timing("tflops", [](P p) -> std::optional<double> { return p.flops_per_second * 1e-12; }),
      {"pct_of_ceiling", false,
       [](R r, const SweepResult& all) {
         return percent_column(share_of_ceiling(r, all.records));
       }},
      {"speedup_vs_naive", false,
       [](R r, const SweepResult& all) { return figure(speedup_vs_naive(r, all.records)); }},
      number("bytes_compulsory", [](R r) { return count(r.item.problem.compulsory_bytes()); }),
      number("bytes_requested", [](R r) { return count(r.requested_bytes); }),
      counted("bytes_measured", measured_bytes),
      number("intensity", [](R r) { return figure(arithmetic_intensity(r)); }),
      number("peak_bytes",
             [](R r) { return r.memory ? count(r.memory->tracked.total()) : std::string(); }),
      number("workspace_bytes",
             [](R r) { return r.memory ? count(r.memory->tracked.workspace) : std::string(); }),
      number("sm_mhz", [](R r) { return figure(median_state(r, &DeviceState::sm_mhz)); }),
      number("power_w", [](R r) { return figure(median_state(r, &DeviceState::power_w)); }),
      number("throttled", [](R r) { return figure(throttled_share(r)); }),
      axis_column("layout"),
      axis_column("distribution"),
      axis_column("seed"),
      number("scale", [](R r) { return figure(r.item.problem.softmax_scale()); }),
      timing("tflops_convention",
             [](P p) -> std::optional<double> { return p.convention_flops_per_second * 1e-12; }),
      axis_column("placement"),
      optional_text("determinism",
                    [](R r) {
                      return r.determinism ? std::string(name(r.determinism->kind)) : std::string();
                    }),
      optional_number("max_diff_vs_naive",
                      [](R r) { return r.from_naive ? figure(r.from_naive->max_abs) : ""; }),
      optional_number("mean_diff_vs_naive",
                      [](R r) { return r.from_naive ? figure(r.from_naive->mean_abs) : ""; }),
      optional_number("host_us",
                      [](R r) {
                        return r.measurement && r.measurement->host_seconds
                                   ? figure(*r.measurement->host_seconds * 1e6)
                                   : "";
                      }),
      optional_number(
          "prepare_ms",
          [](R r) { return r.prepare_seconds ? figure(*r.prepare_seconds * 1e3) : ""; }),
      counted("dram_read_bytes", &CounterReport::run, Counted::dram_read),
      counted("dram_write_bytes", &CounterReport::run, Counted::dram_write),
      counted("dram_write_flushed_bytes", &CounterReport::run_and_eviction, Counted::dram_write),
      counted("l2_bytes", &CounterReport::run, Counted::l2),
      counted("tensor_ops", &CounterReport::run, Counted::tensor),
      optional_number("tensor_ops_per_flop",
                      [](R r) {
                        const auto tensor = tensor_operations(r);
                        return tensor ? figure(tensor->ratio) : "";
                      }),
      optional_text("tensor_ops_verdict",
                    [](R r) {
                      const auto tensor = tensor_operations(r);
                      return tensor ? std::string(tensor->verdict) : "";
                    }),
      optional_text("counters",
                    [](R r) {
                      const bool asked =
                          r.counters && r.counters->state.status != CounterStatus::off;
                      return asked ? std::string(name(r.counters->state.status)) : "";
                    }),
      optional_number("joules_per_run",
                      [](R r) { return r.energy ? figure(r.energy->joules_per_run()) : ""; }),
      optional_number("rel_rms_err",
                      [](R r) {
                        const auto worst = worst_error(r.verdict);
                        return worst ? figure(worst->rel_rms) : "";
                      }),
      {"pct_of_peak", false,
       [](R r, const SweepResult& all) { return percent_column(share_of_peak(r, all)); }, true},
      optional_number("pct_padding",
                      [](R r) {
                        const double share = r.item.problem.padding();
                        return share > 0 ? figure(share * 100) : "";
                      }),
      {"kv_bytes_per_s", false,
       [](R r, const SweepResult& all) { return figure(kv_bytes_per_second(r, all)); }, true},
      {"pct_of_read", false,
       [](R r, const SweepResult& all) { return percent_column(share_of_read(r, all)); }, true},
      optional_number("pct_of_stream", [](R r) { return percent_column(share_of_stream(r)); }),
      optional_number("stream_us", [](R r) { return in_us(round_ceiling(r, kStream)); }),
      optional_number("null_launch_us", [](R r) { return in_us(round_ceiling(r, kNullLaunch)); }),
      {"fixed_us", false, [](R r, const SweepResult& all) { return in_us(fixed_seconds(r, all)); },
       true},
      scheduled("splits", &Schedule::splits),
      scheduled("workers", &Schedule::workers),
      scheduled("partial_bytes", &Schedule::partial_bytes),
      optional_number("imbalance",
                      [](R r) { return r.schedule ? figure(r.schedule->imbalance) : ""; }),
      {"per_gpu_ms", true, [](R r, const SweepResult&) { return per_device_ms(r); }, true},
      of_group("skew_pct", [](const GroupReport& group) { return figure(group.skew() * 100); }),
      of_group("sent_bytes",
               [](const GroupReport& group) {
                 return group.sent_bytes.empty()
                            ? std::string()
                            : count(*std::ranges::max_element(group.sent_bytes));
               }),
      of_group("compute_only_ms",
               [](const GroupReport& group) { return figure(group.computing * 1e3); }),
      of_group("comm_only_ms",
               [](const GroupReport& group) { return figure(group.copying * 1e3); }),
      of_group("exposed_ms",
               [](const GroupReport& group) { return figure(group.exposed() * 1e3); }),
      of_group("overlap", [](const GroupReport& group) { return figure(group.overlap()); }),
      of_group("busbw_gbps",
               [](const GroupReport& group) {
                 const auto rate = group.bus_bandwidth();
                 return rate ? figure(*rate / 1e9) : std::string();
               }),
      {"eff_strong", false,
       [](R r, const SweepResult& all) { return figure(strong_efficiency(r, all.records)); }, true},
      optional_number("eff_same_work", [](R r) { return figure(same_work_efficiency(r)); }),
      optional_number("plan_us", [](R r) { return in_us(r.plan_seconds); }),
      optional_number(
          "nodes",
          [](R r) { return r.kernels.empty() ? "" : fmt::format("{}", r.kernels.size()); }),
      optional_number("length_cv", [](R r) { return figure(length_variation(r.item.problem)); }),
      optional_number("page_waste", [](R r) { return figure(page_waste(r.item.problem)); }),
      optional_text("accumulator", [](R r) { return r.accumulator; }),
      optional_text("output_dtype", [](R r) { return r.output_dtype; }),
      rmse("rmse_total", &RecipeCost::total, &Rmse::value),
      rmse("rmse_total_low", &RecipeCost::total, &Rmse::low),
      rmse("rmse_total_high", &RecipeCost::total, &Rmse::high),
      rmse("rmse_quant", &RecipeCost::quant, &Rmse::value),
      rmse("rmse_kernel", &RecipeCost::kernel, &Rmse::value),
      rel_rmse("rel_rmse_total", &RecipeCost::total),
      rel_rmse("rel_rmse_quant", &RecipeCost::quant),
      rel_rmse("rel_rmse_kernel", &RecipeCost::kernel),
      optional_number("rounding_us", [](R r) { return in_us(part_seconds(r, RunPart::rounding)); }),
      optional_number("attention_us",
                      [](R r) { return in_us(part_seconds(r, RunPart::attention)); }),
      optional_number("rounding_bytes_per_s",
                      [](R r) { return figure(rounding_bytes_per_second(r)); }),
      {"rounding_pct_of_copy", false,
       [](R r, const SweepResult& all) { return percent_column(rounding_share_of_copy(r, all)); },
       true},
      optional_number("speedup_vs_unrounded", [](R r) { return figure(speedup_vs_unrounded(r)); }),
      {"notes", true,
       [](R r, const SweepResult& all) {
         return fmt::format("{}", fmt::join(notes(r, all), "; "));
       },
       true},
  };
  add_other_axes(columns);
  return columns;
}

}  // namespace

const std::vector<Column>& columns() {
  static const std::vector<Column> table = make_columns();
  return table;
}

}  // namespace flashbench
