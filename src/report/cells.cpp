#include "report/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "measure/undisturbed.h"

namespace flashbench {

namespace {

constexpr double kMebibyte = 1 << 20;

// Three significant digits or more, without an exponent, for figures from 0.001 up.
std::string fixed(double value) {
  const int decimals = value < 0.1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : value < 10000 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

template <typename T, typename Format>
std::string or_dash(const std::optional<T>& value, Format format) {
  return value ? format(*value) : "-";
}

// Half the interval's width: "+-" of the median.
std::string half_width(const Performance& p) {
  if (!p.interval) return "-";
  return fmt::format("{:.1f}%", 50 * (p.interval->high - p.interval->low) / p.median);
}

std::string mebibytes(int64_t bytes) {
  return fixed(static_cast<double>(bytes) / kMebibyte);
}

std::string percent_of_ceiling(const Performance& p) {
  return or_dash(p.share_of_ceiling,
                 [](double share) { return fmt::format("{:.1f}", share * 100); });
}

bool any_determinism(const SweepResult& result) {
  return std::any_of(result.records.begin(), result.records.end(),
                     [](const Record& record) { return record.determinism.has_value(); });
}

// "bitwise", "bounded 0.31" (the largest lambda), "varies", "-".
std::string determinism_text(const Record& record) {
  return or_dash(record.determinism, [](const Determinism& d) {
    const std::string text(name(d.kind));
    return d.kind == Determinism::Kind::bounded ? fmt::format("{} {:.2g}", text, d.max_lambda)
                                                : text;
  });
}

std::string load_beside(const Record& record) {
  return record.measurement && record.measurement->load ? told(*record.measurement->load) : "";
}

}  // namespace

std::vector<Cell> cells(const Record& record, const SweepResult& result) {
  const auto timed = performance(record);
  const auto worst = worst_error(record.verdict);
  using P = const Performance&;
  using W = const WorstError&;
  std::vector<Cell> row{
      {"provider", 13, record.provider},
      {"median ms", 10, or_dash(timed, [](P p) { return fixed(p.median * 1e3); })},
      {"+-", 7, or_dash(timed, half_width)},
      {"GFLOP/s", 9, or_dash(timed, [](P p) { return fixed(p.flops_per_second * 1e-9); })},
      {"% gemm", 8, or_dash(timed, percent_of_ceiling)},
      {"x naive", 9, or_dash(speedup_vs_naive(record, result.records), fixed)},
      {"peak MiB", 10,
       or_dash(record.memory, [](const MemoryReport& m) { return mebibytes(m.tracked.total()); })},
      {"traffic MiB", 13, or_dash(record.requested_bytes, mebibytes)},
      {"max err", 9, or_dash(worst, [](W w) { return fmt::format("{:.1e}", w.max_abs); })},
      {"verdict", 12, std::string(verified(record.verdict))},
  };
  if (any_determinism(result)) row.push_back({"runs agree", 14, determinism_text(record)});
  return row;
}

std::string case_heading(const Case& item) {
  const Problem& p = item.problem;
  std::string text = fmt::format("{}  {}  {}  {}  batch {}  heads {}", name(p.pass), name(p.dtype),
                                 name(p.mask), name(p.layout), p.batch, p.q_heads);
  if (p.kv_heads != p.q_heads) text += fmt::format("/{}", p.kv_heads);
  text += p.q_len == p.kv_len ? fmt::format("  seq {}", p.q_len)
                              : fmt::format("  q {}  kv {}", p.q_len, p.kv_len);
  text += fmt::format("  d {}", p.head_dim);
  if (p.scale) text += fmt::format("  scale {}", *p.scale);
  text += "  " + item.inputs.id();
  if (item.placement != Placement::contiguous) text += fmt::format("  {}", name(item.placement));
  return text;
}

std::vector<std::string> notes(const Record& record) {
  std::vector<std::string> notes;
  if (!record.reason.empty()) {
    notes.push_back(fmt::format("{}: {}", name(record.status), record.reason));
  }
  if (const std::string load = load_beside(record); !load.empty()) {
    const std::vector<bool> clean = undisturbed(*record.measurement);
    notes.push_back(fmt::format("load: {}; {} of {} samples undisturbed", load,
                                std::count(clean.begin(), clean.end(), true), clean.size()));
  }
  return notes;
}

std::vector<std::string> summary_lines(const SweepResult& result) {
  std::map<Status, int> counts;
  std::map<std::string, std::vector<double>> speedups;
  for (const Record& record : result.records) {
    ++counts[record.status];
    const auto speedup = speedup_vs_naive(record, result.records);
    if (speedup && record.provider != "naive") speedups[record.provider].push_back(*speedup);
  }
  std::vector<std::string> parts;
  for (const auto& [status, count] : counts)
    parts.push_back(fmt::format("{} {}", count, name(status)));
  std::vector<std::string> lines{
      fmt::format("{} rows: {}", result.records.size(), fmt::join(parts, ", "))};
  for (const auto& [provider, factors] : speedups) {
    double log_sum = 0;
    for (double factor : factors) log_sum += std::log(factor);
    lines.push_back(fmt::format("{}: {:.2f}x naive (geometric mean of {} cases)", provider,
                                std::exp(log_sum / static_cast<double>(factors.size())),
                                factors.size()));
  }
  const auto loaded = std::count_if(result.records.begin(), result.records.end(),
                                    [](const Record& r) { return !load_beside(r).empty(); });
  if (loaded > 0) {
    lines.push_back(
        fmt::format("load: {} of {} rows were timed while others had the cores; such times are too "
                    "long",
                    loaded, result.records.size()));
  }
  return lines;
}

}  // namespace flashbench
