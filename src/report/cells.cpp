#include "report/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/axis.h"
#include "plan/count_of.h"
#include "report/memory_bound.h"
#include "report/notes.h"

namespace flashbench {

namespace {

constexpr double kMebibyte = 1 << 20;

// Formats figures from 0.001 up with at least three significant digits, without an exponent.
std::string fixed(double value) {
  const int decimals = value < 0.1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : value < 10000 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

template <typename T, typename Format>
std::string or_dash(const std::optional<T>& value, Format format) {
  return value ? format(*value) : "-";
}

// The "+-" of the median: half the width of its interval.
std::string half_width(const Performance& p) {
  if (!p.interval) return "-";
  return fmt::format("{:.1f}%", 50 * (p.interval->high - p.interval->low) / p.median);
}

std::string mebibytes(int64_t bytes) {
  return fixed(static_cast<double>(bytes) / kMebibyte);
}

std::string percent(std::optional<double> share) {
  return or_dash(share, [](double value) { return fmt::format("{:.1f}", value * 100); });
}

std::string exponential(double value) {
  return fmt::format("{:.1e}", value);
}

// Shows the root mean square, which is more informative than the largest error. Older results have
// only the latter.
Cell error_cell(const std::optional<WorstError>& worst, bool shows_rel_rms) {
  if (shows_rel_rms) {
    return {"rel rms", 9, worst ? or_dash(worst->rel_rms, exponential) : std::string("-")};
  }
  return {"max err", 9, or_dash(worst, [](const WorstError& w) { return exponential(w.max_abs); })};
}

bool has_rel_rms(const Record& record) {
  const auto worst = worst_error(record.verdict);
  return worst && worst->rel_rms;
}

// "bitwise", "bounded 0.31" (the largest lambda), "varies", "-".
std::string determinism_text(const Record& record) {
  return or_dash(record.determinism, [](const Determinism& d) {
    const std::string text(name(d.kind));
    return d.kind == Determinism::Kind::bounded ? fmt::format("{} {:.2g}", text, d.max_lambda)
                                                : text;
  });
}

}  // namespace

Cells::Cells(const SweepResult& result) : result_(result) {
  const auto any = [&](auto has) { return std::ranges::any_of(result.records, has); };
  shows_share_of_peak_ = any([&](const Record& r) { return share_of_peak(r, result).has_value(); });
  shows_share_of_stream_ = any([](const Record& r) { return share_of_stream(r).has_value(); });
  shows_rel_rms_ = any(has_rel_rms);
  shows_determinism_ = any([](const Record& r) { return r.determinism.has_value(); });
}

std::vector<Cell> Cells::of(const Record& record) const {
  const auto timed = performance(record);
  const auto worst = worst_error(record.verdict);
  using P = const Performance&;
  std::vector<Cell> row{
      {"provider", 13, record.provider},
      {"median ms", 10, or_dash(timed, [](P p) { return fixed(p.median * 1e3); })},
      {"+-", 7, or_dash(timed, half_width)},
      {"GFLOP/s", 9, or_dash(timed, [](P p) { return fixed(p.flops_per_second * 1e-9); })},
      {"% gemm", 8, percent(share_of_ceiling(record, result_.records))},
      {"x naive", 9, or_dash(speedup_vs_naive(record, result_.records), fixed)},
      {"peak MiB", 10,
       or_dash(record.memory, [](const MemoryReport& m) { return mebibytes(m.tracked.total()); })},
      {"traffic MiB", 13, or_dash(record.requested_bytes, mebibytes)},
      error_cell(worst, shows_rel_rms_),
      {"verdict", 12, std::string(verified(record.verdict))},
  };
  if (shows_share_of_peak_) {
    row.insert(row.begin() + 5, {"% peak", 8, percent(share_of_peak(record, result_))});
  }
  if (shows_share_of_stream_) {
    row.insert(row.begin() + 5, {"% stream", 9, percent(share_of_stream(record))});
  }
  if (shows_determinism_) row.push_back({"runs agree", 14, determinism_text(record)});
  return row;
}

std::string case_heading(const Case& item) {
  const Problem& p = item.problem;
  std::string text = fmt::format("{}  {}  {}  {}  batch {}  heads {}", name(p.pass), name(p.dtype),
                                 name(p.mask), name(p.layout), p.batch, p.q_heads);
  if (p.kv_heads != p.q_heads) text += fmt::format("/{}", p.kv_heads);
  const std::string_view up_to = p.lengths ? "up to " : "";
  text += p.q_len == p.kv_len ? fmt::format("  seq {}{}", up_to, p.q_len)
                              : fmt::format("  q {0}{1}  kv {0}{2}", up_to, p.q_len, p.kv_len);
  text += fmt::format("  d {}", p.head_dim);
  if (p.scale) text += fmt::format("  scale {}", *p.scale);
  text += "  " + item.inputs.id();
  for (const Axis& axis : axes()) {
    if (axis.role != Axis::Role::optional || !axis.is_mentioned(item)) continue;
    text += fmt::format("  {}{}", axis.is_named() ? fmt::format("{} ", axis.name) : "",
                        axis.text(item));
  }
  return text;
}

std::vector<std::string> summary_lines(const SweepResult& result) {
  std::map<Status, int> counts;
  int coarse = 0;
  std::map<std::string, std::vector<double>> speedups;
  for (const Record& record : result.records) {
    ++counts[record.status];
    coarse += record.status == Status::ok && !record.verdict.coarse.empty() ? 1 : 0;
    const auto speedup = speedup_vs_naive(record, result.records);
    if (speedup && record.provider != "naive") speedups[record.provider].push_back(*speedup);
  }
  std::vector<std::string> parts;
  for (const auto& [status, count] : counts)
    parts.push_back(
        fmt::format("{} {}", count, name(status)) +
        (status == Status::ok && coarse > 0 ? fmt::format(" ({} coarse)", coarse) : ""));
  std::vector<std::string> lines{
      fmt::format("{}: {}", count_of(result.records.size(), "row"), fmt::join(parts, ", "))};
  for (const auto& [provider, factors] : speedups) {
    double log_sum = 0;
    for (double factor : factors) log_sum += std::log(factor);
    lines.push_back(fmt::format("{}: {:.2f}x naive (geometric mean of {})", provider,
                                std::exp(log_sum / static_cast<double>(factors.size())),
                                count_of(factors.size(), "case")));
  }
  const std::vector<std::string> said = warnings(result);
  lines.insert(lines.end(), said.begin(), said.end());
  return lines;
}

}  // namespace flashbench
