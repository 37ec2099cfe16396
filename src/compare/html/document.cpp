#include "compare/html/document.h"

#include <map>
#include <string>
#include <utility>

#include "compare/present.h"
#include "report/html/document.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;
using Numbers = std::map<std::pair<std::string, std::string>, size_t>;

// The numbers of a result's rows by case and provider.
Numbers numbers_of(const std::vector<Record>& records) {
  Numbers numbers;
  for (size_t i = 0; i < records.size(); ++i) {
    numbers[{records[i].item.key(), records[i].provider}] = i;
  }
  return numbers;
}

Json number_of(const RowComparison& row, const Numbers& numbers) {
  const auto at = numbers.find({row.item.key(), row.provider});
  return at == numbers.end() ? Json() : Json(at->second);
}

Json conditions_json(const SweepResult& base, const SweepResult& now) {
  const std::vector<Condition> before = conditions(base), after = conditions(now);
  Json list = Json::array();
  for (size_t i = 0; i < before.size(); ++i) {
    list.push_back({{"key", before[i].key}, {"base", before[i].value}, {"new", after[i].value}});
  }
  return list;
}

}  // namespace

Json html_document(const Comparison& comparison, const NamedResult& base, const NamedResult& now) {
  Json json = comparison_json(comparison);
  for (const char* name : {"base", "new"}) json.erase(name);
  const Numbers before = numbers_of(base.result.records), after = numbers_of(now.result.records);
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    Json& row = json["rows"][i];
    for (const char* name : {"key", "case"}) row.erase(name);
    row["base"] = number_of(comparison.rows[i], before);
    row["new"] = number_of(comparison.rows[i], after);
  }
  json["conditions"] = conditions_json(base.result, now.result);
  Json document = html_document({base, now});
  document["comparison"] = std::move(json);
  return document;
}

}  // namespace flashbench
