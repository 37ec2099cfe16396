#include "program/figures.h"

#include <fmt/format.h>

#include <stdexcept>

#include "measure/sample_bounds.h"
#include "plan/json_text.h"

namespace flashbench {

namespace {

using Json = ProgramProcess::Json;

constexpr double kMostBytes = 0x1p60;

}  // namespace

std::optional<double> AnsweredFigures::seconds_of_run(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return number(key, *value, kShortestSample, kLongestSample);
}

std::optional<double> AnsweredFigures::seconds(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return number(key, *value, 0, kLongestSample);
}

std::optional<int64_t> AnsweredFigures::bytes(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return static_cast<int64_t>(number(key, *value, 0, kMostBytes));
}

const Json* AnsweredFigures::find(const char* key) const {
  const auto found = answer_.find(key);
  return found == answer_.end() || found->is_null() ? nullptr : &*found;
}

double AnsweredFigures::number(const char* key, const Json& value, double least,
                               double most) const {
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number >= least && number <= most) return number;
  fail(fmt::format("expected \"{}\" from {:g} to {:g}, found {}", key, least, most, shown(value)));
}

void AnsweredFigures::fail(const std::string& what_is_wrong) const {
  throw std::runtime_error(
      fmt::format("{} gave a wrong answer to \"{}\": {}", path_, what_, what_is_wrong));
}

}  // namespace flashbench
