#include "report/run_parts.h"

#include <algorithm>

namespace flashbench {

const Measurement* part_of_run(const Record& record, RunPart part) {
  const auto found = std::ranges::find(record.parts, part, &PartTime::part);
  return found == record.parts.end() ? nullptr : &found->measurement;
}

std::optional<double> part_seconds(const Record& record, RunPart part) {
  const Measurement* measured = part_of_run(record, part);
  if (measured == nullptr || measured->seconds.empty()) return std::nullopt;
  return median(measured->seconds);
}

std::optional<double> rounding_bytes_per_second(const Record& record) {
  const auto seconds = part_seconds(record, RunPart::rounding);
  if (!seconds) return std::nullopt;
  const Problem& p = record.item.problem;
  const int64_t elements = p.query_elements() + p.key_elements() + p.value_elements();
  return static_cast<double>(elements * (element_size(p.dtype) + element_size(Dtype::e4m3))) /
         *seconds;
}

std::optional<double> rounding_share_of_copy(const Record& record, const SweepResult& result) {
  const auto rate = rounding_bytes_per_second(record);
  const auto copy = measured_rate(record, "copy", result);
  return rate && copy ? if_possible(*rate / *copy) : std::nullopt;
}

}  // namespace flashbench
