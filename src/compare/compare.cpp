#include "compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "compare/evidence.h"
#include "compare/hypothesis.h"
#include "measure/round_ceilings.h"
#include "measure/stats.h"
#include "measure/undisturbed.h"

namespace flashbench {

namespace {

// One process cannot show the variation between processes. It was measured to be twice what the
// blocks of its rounds predict, and 1% on a quiet machine.
constexpr double kOneProcessFactor = 2;
constexpr double kOneProcessError = 0.01;
constexpr double kProcessesError = 0.001;  // the error that even a clock may have

// Work that shares its cores takes longer even while it runs: its caches are cold, and its threads
// spin while one of them waits.
constexpr double kUndisturbedError = 0.01;
constexpr double kProcessorError = 0.03;

constexpr double kIntervalConfidence = 0.95;

// How many standard errors the change should be away from the limit of a verdict, so that it is
// almost always reached; and the range of repetitions worth asking for.
constexpr double kErrorsToSame = 2.2, kErrorsToChange = 3.5;
constexpr int kMinRepetitions = 3, kMostRepetitions = 30;

// A row that is timed on both sides, before its verdict.
struct TimedRow {
  const Record* base;
  const Record* now;
  RowComparison* row;
  std::optional<Evidence> evidence;

  // Set by weigh().
  double standard_error = 0, degrees_of_freedom = 0;
  double anchored_error = 0;
  double p_change = 1, p_anchored = 1, p_rank = 1;

  double p() const { return std::max({p_change, p_anchored, p_rank}); }
};

using RowKey = std::pair<std::string, std::string>;

RowKey row_key(const Record& record) {
  return {record.item.key(), record.provider};
}

std::map<RowKey, const Record*> by_key(const std::vector<Record>& records) {
  std::map<RowKey, const Record*> result;
  for (const Record& record : records) result[row_key(record)] = &record;
  return result;
}

// ---- rows without a comparison of times

enum class State { absent, good, wrong };

State state(const Record* record) {
  if (record == nullptr) return State::absent;
  switch (record->status) {
    case Status::ok:
      return State::good;
    case Status::unsupported:
    case Status::skipped:
      return State::absent;
    case Status::failed:
    case Status::out_of_memory:
    case Status::crashed:
    case Status::timeout:
    case Status::error:
      return State::wrong;
  }
  return State::wrong;
}

std::string told(const Record* record) {
  if (record == nullptr) return "not there";
  if (record->reason.empty()) return std::string(name(record->status));
  return fmt::format("{}: {}", name(record->status), record->reason);
}

// Both rows ended well. A base without root mean squares cannot tell: false.
bool is_newly_coarse(const Record& base, const Record& now) {
  const auto before = worst_error(base.verdict);
  return !now.verdict.coarse.empty() && base.verdict.coarse.empty() && before && before->rel_rms;
}

std::pair<Change, std::string> change_of_state(const Record* base, const Record* now) {
  const State before = state(base), after = state(now);
  if (before == State::good && after == State::wrong) return {Change::newly_wrong, told(now)};
  if (before == State::good && after == State::good && is_newly_coarse(*base, *now)) {
    return {Change::newly_wrong, "coarse: " + now->verdict.coarse};
  }
  if (before == State::wrong && after == State::good) {
    return {Change::fixed, "was " + told(base)};
  }
  if (before == State::absent && after != State::absent) {
    if (base == nullptr && after == State::good) return {Change::added, ""};
    return {Change::added, fmt::format("was {}, is {}", told(base), told(now))};
  }
  if (before != State::absent && after == State::absent) return {Change::missing, told(now)};
  if (before == State::good) return {Change::untimed, "was not timed on both sides"};
  return {Change::untimed, fmt::format("was {}, is {}", told(base), told(now))};
}

bool is_timed(const Record* record) {
  return state(record) == State::good && performance(*record).has_value();
}

std::optional<double> median_of(const Record* record) {
  if (!is_timed(record)) return std::nullopt;
  return performance(*record)->median;
}

RowComparison row_of(const Record* base, const Record* now) {
  RowComparison row;
  const Record& either = now != nullptr ? *now : *base;
  row.item = either.item;
  row.provider = either.provider;
  row.base_median = median_of(base);
  row.now_median = median_of(now);
  std::tie(row.change, row.reason) = change_of_state(base, now);
  return row;
}

// ---- rows that are timed on both sides

double nominal_error(const Evidence& evidence) {
  const double of_units = evidence.by_process ? kProcessesError : kOneProcessError;
  switch (evidence.basis.kind) {
    case Basis::Kind::samples:
      return of_units;
    case Basis::Kind::undisturbed:
      return std::max(of_units, kUndisturbedError);
    case Basis::Kind::processor:
      return std::max(of_units, kProcessorError);
  }
  return of_units;
}

double own_error(const Evidence& evidence) {
  return evidence.standard_error * (evidence.by_process ? 1 : kOneProcessFactor);
}

double pooled_degrees(const std::vector<TimedRow*>& rows) {
  double sum = 0;
  for (const TimedRow* row : rows) sum += row->evidence->degrees_of_freedom;
  return sum;
}

double median_error(const std::vector<TimedRow*>& rows) {
  std::vector<double> errors;
  for (const TimedRow* row : rows) errors.push_back(own_error(*row->evidence));
  return median(errors);
}

// Sets the uncertainty of each row's change: its own, but at least that of the median row, because
// a row's own is estimated from a few units only.
void set_errors(const std::vector<TimedRow*>& rows) {
  if (rows.empty()) return;
  const double pooled = median_error(rows), degrees = pooled_degrees(rows);
  for (TimedRow* row : rows) {
    const Evidence& evidence = *row->evidence;
    const double own = own_error(evidence), least = std::max(pooled, nominal_error(evidence));
    row->standard_error = std::max(own, least);
    row->degrees_of_freedom = own > least ? evidence.degrees_of_freedom : degrees;
    row->anchored_error = std::hypot(row->standard_error, evidence.anchor_error);
  }
}

// Two-sided p-values for "changed by more than the threshold".
void weigh(TimedRow& row, double threshold) {
  const Evidence& evidence = *row.evidence;
  const bool slower = evidence.change > 0;
  const double sign = slower ? 1 : -1;
  const auto p_of = [&](double change, double error) {
    const double t = (sign * change - std::log1p(threshold)) / error;
    return std::min(1.0, 2 * student_t_upper(t, row.degrees_of_freedom));
  };
  const auto& [kind, base, now] = evidence.basis;
  row.p_change = p_of(evidence.change, row.standard_error);
  row.p_anchored = p_of(evidence.anchored_change, row.anchored_error);
  row.p_rank = std::min(
      1.0, 2 * (slower ? rank_test(base, now, threshold) : rank_test(now, base, threshold)));
}

// Whether the fastest sample and the median changed too. If processor times were compared, the
// estimated time must also have changed: work that spreads over more threads takes more processor
// time but less time.
bool ends_agree(const Evidence& evidence, double threshold) {
  const double sign = evidence.change > 0 ? 1 : -1;
  double least = std::min(sign * evidence.min_change, sign * evidence.median_change);
  if (evidence.basis.kind == Basis::Kind::processor) {
    least = std::min(least, sign * evidence.estimated_change);
  }
  return least > std::log1p(threshold);
}

std::string percent(double ratio) {
  if (ratio >= 10) return fmt::format("{:.3g} times", ratio);
  return fmt::format("{:+.1f}%", (ratio - 1) * 100);
}

bool within(double change, const CompareOptions& options) {
  return std::abs(change) <= std::log1p(std::max(options.same_within, options.noise_threshold));
}

// Why neither a change nor SAME can be concluded.
std::string doubt(const TimedRow& row, double margin, const CompareOptions& options) {
  const RowComparison& figures = *row.row;
  const auto clear = [&](double p) { return p <= options.significance; };
  const bool changed = clear(row.p_change);
  const bool steady = within(std::abs(row.evidence->change) + margin, options);
  if (steady && row.evidence->basis.kind == Basis::Kind::processor) {
    return "takes as much processor time, but load hid how much of it ran in parallel";
  }
  if ((changed && !clear(row.p_anchored)) || steady) {
    return fmt::format("{}, but {} relative to the GEMM timed beside it", percent(*figures.ratio),
                       percent(*figures.anchored_ratio));
  }
  if (changed && !clear(row.p_rank)) return "the samples overlap";
  if (changed && !ends_agree(*row.evidence, options.noise_threshold)) {
    return "the fastest sample or the median did not change accordingly";
  }
  if (changed) return "may be chance, with so many rows";
  return fmt::format("the change may be anything from {} to {}", percent(figures.interval->low),
                     percent(figures.interval->high));
}

// ---- load

size_t count(const std::vector<bool>& flags) {
  return static_cast<size_t>(std::count(flags.begin(), flags.end(), true));
}

// Adds a line about the load during a side's measurement, if any.
void tell_of_side(const char* side, const Measurement& measurement, size_t undisturbed,
                  std::vector<std::string>& lines) {
  const std::string load = measurement.load ? told(*measurement.load) : "";
  if (load.empty()) return;
  std::string line = fmt::format("load, {}: {}", side, load);
  if (is_heavy(*measurement.load) && !measurement.core_times.empty()) {
    line += fmt::format("; {} of {} samples undisturbed", undisturbed, measurement.seconds.size());
  }
  lines.push_back(std::move(line));
}

void tell_of_load(TimedRow& row) {
  RowComparison& figures = *row.row;
  const Measurement &base = *row.base->measurement, &now = *row.now->measurement;
  figures.base_undisturbed = count(undisturbed(base));
  figures.now_undisturbed = count(undisturbed(now));
  tell_of_side("base", base, figures.base_undisturbed, figures.load);
  tell_of_side("new", now, figures.now_undisturbed, figures.load);
  if (!row.evidence) return;
  const Basis::Kind kind = row.evidence->basis.kind;
  if (kind == Basis::Kind::undisturbed) figures.load.push_back("undisturbed samples are compared");
  if (kind == Basis::Kind::processor) figures.load.push_back("processor times are compared");
}

// ---- what it would take

// The number of units that each side needs for this standard error.
int units_for(const Evidence& evidence, double error) {
  return static_cast<int>(std::ceil(2 * evidence.unit_variance / (error * error)));
}

// What an inconclusive row needs; empty if the GEMM contradicts it, which more measuring will not
// change. More repetitions narrow the interval until the change is beyond the threshold or within
// the range of SAME, whichever is nearer.
std::string needs(const TimedRow& row, const CompareOptions& options) {
  const Evidence& evidence = *row.evidence;
  if (evidence.basis.kind == Basis::Kind::processor) {
    return "a machine with cores to spare, for both sides";
  }
  if (!evidence.by_process) return "--repetitions 3 or more on both sides";
  if (row.p_change <= options.significance && row.p_anchored > options.significance) return "";
  const double change = std::abs(evidence.change);
  const double same = std::log1p(std::max(options.same_within, options.noise_threshold)) - change;
  const double changed = change - std::log1p(options.noise_threshold);
  const double error = std::max(same / kErrorsToSame, changed / kErrorsToChange);
  if (nominal_error(evidence) >= error) return "a quieter machine";
  const auto have = static_cast<int>(std::min(evidence.base_units, evidence.now_units));
  const int units = std::max({units_for(evidence, error), have + 1, kMinRepetitions});
  if (units > kMostRepetitions) return "a quieter machine";
  return fmt::format("about {} repetitions on both sides", units);
}

// The median time of a null launch of each side, in seconds; 0 if none was timed.
struct NullLaunches {
  double base = 0, now = 0;

  explicit NullLaunches(const std::vector<TimedRow>& rows)
      : base(median_of_rows(rows, &TimedRow::base)), now(median_of_rows(rows, &TimedRow::now)) {}

  // Whether they can explain a change of a row's time, which may launch several times.
  bool explain(const RowComparison& row) const {
    constexpr double kLaunches = 3;
    if (base == 0 || now == 0 || !row.base_median || !row.now_median) return false;
    return std::abs(*row.now_median - *row.base_median) <= kLaunches * std::abs(now - base);
  }

 private:
  static double median_of_rows(const std::vector<TimedRow>& rows, const Record* TimedRow::*side) {
    std::vector<double> launches;
    for (const TimedRow& row : rows) {
      const Ceiling* ceiling = round_ceiling(*(row.*side), kNullLaunch);
      if (ceiling == nullptr || ceiling->measurement.seconds.empty()) continue;
      launches.push_back(median(ceiling->measurement.seconds));
    }
    return launches.empty() ? 0 : median(launches);
  }
};

void conclude(TimedRow& row, const NullLaunches& launches, const CompareOptions& options) {
  const Evidence& evidence = *row.evidence;
  RowComparison& figures = *row.row;
  const double margin = row.standard_error *
                        student_t_quantile((1 - kIntervalConfidence) / 2, row.degrees_of_freedom);
  figures.basis = evidence.basis.kind;
  figures.ratio = std::exp(evidence.change);
  figures.anchored_ratio = std::exp(evidence.anchored_change);
  figures.interval =
      Interval{std::exp(evidence.change - margin), std::exp(evidence.change + margin)};

  if (*figures.p <= options.significance && ends_agree(evidence, options.noise_threshold)) {
    if (launches.explain(figures)) {
      figures.reason =
          fmt::format("null launches took {:.3g} and {:.3g} us, which may be the change",
                      launches.base * 1e6, launches.now * 1e6);
      figures.needs = "--repetitions 3 or more on both sides";
      return;
    }
    figures.change = evidence.change > 0 ? Change::slower : Change::faster;
    return;
  }
  if (evidence.basis.kind != Basis::Kind::processor &&
      within(std::abs(evidence.change) + margin, options) &&
      within(evidence.anchored_change, options)) {
    figures.change = Change::same;
    return;
  }
  figures.reason = doubt(row, margin, options);
  figures.needs = needs(row, options);
}

bool has_few_samples(const TimedRow& row) {
  return std::min(row.base->measurement->seconds.size(), row.now->measurement->seconds.size()) <
         kMinSamples;
}

void judge_times(std::vector<TimedRow>& rows, const CompareOptions& options) {
  std::vector<TimedRow*> weighed;
  for (TimedRow& row : rows) {
    row.row->change = Change::inconclusive;
    row.row->reason.clear();
    row.evidence = gather_evidence(*row.base, *row.now, row.row->reason);
    tell_of_load(row);
    if (row.evidence) {
      weighed.push_back(&row);
    } else if (has_few_samples(row)) {
      row.row->needs = "more --repetitions, or a larger --timeout or --max-samples";
    }
  }
  set_errors(weighed);
  std::vector<double> p;
  for (TimedRow* row : weighed) {
    weigh(*row, options.noise_threshold);
    p.push_back(row->p());
  }
  const NullLaunches launches(rows);
  const std::vector<double> adjusted = holm(p);
  for (size_t i = 0; i < weighed.size(); ++i) {
    weighed[i]->row->p = adjusted[i];
    conclude(*weighed[i], launches, options);
  }
}

}  // namespace

int Comparison::count(Change change) const {
  return static_cast<int>(std::count_if(
      rows.begin(), rows.end(), [&](const RowComparison& row) { return row.change == change; }));
}

std::map<std::string, Comparison::MeanRatio> Comparison::mean_ratios() const {
  std::map<std::string, MeanRatio> means;
  std::map<std::string, double> log_sums;
  for (const RowComparison& row : rows) {
    if (!row.ratio) continue;
    MeanRatio& mean = means[row.provider];
    double& log_sum = log_sums[row.provider];
    log_sum += std::log(*row.ratio);
    mean.rows += 1;
    mean.ratio = std::exp(log_sum / mean.rows);
  }
  return means;
}

Comparison compare(const SweepResult& base, const SweepResult& now, const CompareOptions& options,
                   const std::string& base_name, const std::string& now_name) {
  Comparison result{options, base_name, now_name, base.meta, now.meta, {}, {}};
  result.differences =
      require_comparable(base_name, conditions(base), conditions(now), options.allow_different);

  const auto base_rows = by_key(base.records), now_rows = by_key(now.records);
  const auto found = [](const std::map<RowKey, const Record*>& rows, const Record& record) {
    const auto at = rows.find(row_key(record));
    return at == rows.end() ? nullptr : at->second;
  };
  std::vector<TimedRow> timed;
  result.rows.reserve(base.records.size() + now.records.size());  // `timed` points into it
  size_t common = 0;
  for (const Record& record : now.records) {
    const Record* before = found(base_rows, record);
    common += before != nullptr;
    result.rows.push_back(row_of(before, &record));
    if (is_timed(before) && is_timed(&record) && result.rows.back().change != Change::newly_wrong) {
      timed.push_back({before, &record, &result.rows.back(), {}});
    }
  }
  if (common == 0) {
    throw BaselineError(
        fmt::format("{} and {} have no case and provider in common", base_name, now_name));
  }
  for (const Record& record : base.records) {
    if (found(now_rows, record) == nullptr) result.rows.push_back(row_of(&record, nullptr));
  }
  judge_times(timed, options);
  return result;
}

}  // namespace flashbench
