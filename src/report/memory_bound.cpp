#include "report/memory_bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "measure/round_ceilings.h"

namespace flashbench {

namespace {

// The median of a row whose limit is memory.
std::optional<double> streamed_seconds(const Record& record) {
  const auto timed = performance(record);
  return timed && is_streamed(record.item.problem) ? std::optional(timed->median) : std::nullopt;
}

std::optional<double> read_seconds(const Record& record, const SweepResult& result) {
  const auto rate = measured_rate(record, "read", result);
  if (!rate) return std::nullopt;
  return static_cast<double>(record.item.problem.compulsory_bytes()) / *rate;
}

std::optional<double> over_read(const Record& record, const SweepResult& result) {
  const auto own = streamed_seconds(record), read = read_seconds(record, result);
  return own && read ? std::optional(*read / *own) : std::nullopt;
}

std::optional<double> over_stream(const Record& record) {
  const auto own = streamed_seconds(record);
  const Ceiling* stream = round_ceiling(record, kStream);
  if (!own || stream == nullptr || stream->measurement.seconds.empty()) return std::nullopt;
  return median(stream->measurement.seconds) / *own;
}

}  // namespace

std::optional<double> kv_bytes_per_second(const Record& record, const SweepResult& result) {
  if (!over_read(record, result) && !over_stream(record)) return std::nullopt;
  return static_cast<double>(record.item.problem.kv_bytes()) / *streamed_seconds(record);
}

std::optional<double> share_of_read(const Record& record, const SweepResult& result) {
  return if_possible(over_read(record, result));
}

std::optional<double> share_of_stream(const Record& record) {
  return if_possible(over_stream(record));
}

std::optional<double> fixed_seconds(const Record& record, const SweepResult& result) {
  if (!share_of_read(record, result) || !record.gemm || record.gemm->seconds.empty()) {
    return std::nullopt;
  }
  const double read = *read_seconds(record, result);
  const double multiply =
      record.item.problem.flops() * median(record.gemm->seconds) / record.gemm_flops;
  if (multiply > read) return std::nullopt;
  return std::max(0.0, *streamed_seconds(record) - read);
}

std::string read_note(const Record& record, const SweepResult& result) {
  const auto share = over_read(record, result);
  if (!share || *share <= kMostOverCeiling || record.measurement->cache == CacheState::warm) {
    return "";
  }
  return fmt::format(
      "no % of read: caches were cold, and the compulsory bytes take {:.0f}% of the row's time at "
      "the rate of the ceiling read, so it is not a ceiling",
      *share * 100);
}

std::string stream_note(const Record& record) {
  const auto share = over_stream(record);
  if (!share || *share <= kMostOverCeiling) return "";
  return fmt::format("no % of stream: it takes {:.0f}% of the row's time, so it is not a ceiling",
                     *share * 100);
}

std::optional<double> length_variation(const Problem& p) {
  if (!p.lengths) return std::nullopt;
  const auto requests = static_cast<double>(p.batch);
  const double mean = static_cast<double>(p.kv_tokens()) / requests;
  const double squares = p.sum_by_number([&](int64_t b) {
    const double off = static_cast<double>(p.kv_len_of(b)) - mean;
    return off * off;
  });
  return mean > 0 ? std::optional(std::sqrt(squares / requests) / mean) : std::nullopt;
}

std::optional<double> page_waste(const Problem& p) {
  if (!p.is_paged() || p.used_pages() == 0) return std::nullopt;
  return 1 - static_cast<double>(p.kv_rows()) / static_cast<double>(p.used_pages() * *p.page_size);
}

}  // namespace flashbench
