#include "report/html/document.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "measure/undisturbed.h"
#include "plan/axis.h"
#include "report/cells.h"
#include "report/columns.h"
#include "report/json.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSampleDigits = 5, kStateDigits = 4;

Json number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? Json(value) : Json(text);
}

// As many digits as the page shows: a file of samples is mostly digits.
Json rounded(double value, int digits) {
  return std::isfinite(value) ? number(fmt::format("{:.{}g}", value, digits)) : Json();
}

// ---- a row

Json columns_json(const Record& record, const SweepResult& result) {
  Json json = Json::object();
  for (const Column& column : columns()) {
    const std::string text = column.text(record, result);
    if (text.empty()) continue;
    json[std::string(column.name)] = column.is_text ? Json(text) : number(text);
  }
  return json;
}

Json tensor_json(const TensorError& error) {
  Json json{{"tensor", error.tensor},
            {"passed", error.passed},
            {"checked", error.checked},
            {"nonfinite", error.nonfinite},
            {"max_abs", rounded(error.max_abs, kStateDigits)},
            {"mean_abs", rounded(error.mean_abs, kStateDigits)},
            {"ratio", rounded(error.ratio, kStateDigits)},
            {"lambda", rounded(error.lambda, kStateDigits)},
            {"worst", error.worst}};
  if (error.rel_rms_err) json["rel_rms"] = rounded(*error.rel_rms_err, kStateDigits);
  return json;
}

Json checks_json(const Verdict& verdict) {
  Json tensors = Json::array();
  for (const TensorError& error : verdict.tensors) tensors.push_back(tensor_json(error));
  return {{"fraction", rounded(verdict.checked_fraction, kStateDigits)},
          {"reason", verdict.reason},
          {"tensors", std::move(tensors)}};
}

// The numbers of the samples, from 0, for which the test holds.
template <typename Holds>
Json samples_that(size_t samples, Holds holds) {
  Json numbers = Json::array();
  for (size_t i = 0; i < samples; ++i) {
    if (holds(i)) numbers.push_back(i);
  }
  return numbers;
}

Json samples_json(const Measurement& measurement) {
  Json json{{"ms", Json::array()},
            {"warmup_runs", measurement.warmup_runs},
            {"cache", name(measurement.cache)},
            {"stop_reason", measurement.stop_reason}};
  for (double seconds : measurement.seconds) {
    json["ms"].push_back(rounded(seconds * 1e3, kSampleDigits));
  }
  if (!measurement.states.empty()) {
    for (const DeviceState& state : measurement.states) {
      json["sm_mhz"].push_back(rounded(state.sm_mhz, kStateDigits));
      json["power_w"].push_back(rounded(state.power_w, kStateDigits));
    }
    json["throttled"] = samples_that(measurement.states.size(), [&](size_t i) {
      return (measurement.states[i].throttle_reasons & DeviceState::kSlowing) != 0;
    });
  }
  const std::vector<bool> clean = undisturbed(measurement);
  json["disturbed"] = samples_that(clean.size(), [&](size_t i) { return !clean[i]; });
  if (!measurement.samples_per_process.empty()) {
    json["per_process"] = measurement.samples_per_process;
  }
  return json;
}

Json row_json(const Record& record, const SweepResult& result) {
  Json json = columns_json(record, result);
  json.erase("schema");
  json["case"] = case_heading(record.item);
  json["command"] = repro_command(record);
  json["checks"] = checks_json(record.verdict);
  if (!record.source.empty()) json["source"] = record.source;
  if (record.measurement) json["samples"] = samples_json(*record.measurement);
  if (!record.kernels.empty()) json["kernels"] = kernels_to_json(record.kernels);
  return json;
}

// ---- a result

Json ceilings_json(const std::vector<Ceiling>& ceilings) {
  Json list = Json::array();
  for (const Ceiling& ceiling : ceilings) {
    list.push_back({{"name", ceiling.name},
                    {"unit", ceiling.unit},
                    {"description", ceiling.description},
                    {"rate", rounded(ceiling.rate(), kSampleDigits)}});
  }
  return list;
}

Json result_json(const NamedResult& named) {
  const SweepResult& result = named.result;
  Json rows = Json::array();
  for (const Record& record : result.records) rows.push_back(row_json(record, result));
  return {{"file", named.source},    {"summary", summary_lines(result)},
          {"meta", result.meta},     {"devices", result.devices},
          {"config", result.config}, {"ceilings", ceilings_json(result.ceilings)},
          {"rows", std::move(rows)}};
}

// What cases differ in: charts of cases that differ in another axis than length are apart.
Json axes_json() {
  Json names = Json::array();
  for (const Axis& axis : axes()) {
    if (axis.role != Axis::Role::shorthand) names.push_back(axis.name);
  }
  return names;
}

}  // namespace

Json html_document(const std::vector<NamedResult>& results) {
  Json list = Json::array();
  for (const NamedResult& named : results) list.push_back(result_json(named));
  return {{"axes", axes_json()}, {"results", std::move(list)}};
}

}  // namespace flashbench
