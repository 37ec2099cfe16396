#include "compare/beside.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "attention/error.h"
#include "compare/comparable.h"

namespace flashbench {

namespace {

void require_same_conditions(const NamedResult& first, const NamedResult& other) {
  std::string refused;
  for (const Difference& difference :
       differences(conditions(first.result), conditions(other.result))) {
    refused += fmt::format("\n  {}: \"{}\" there, \"{}\" here", difference.key, difference.base,
                           difference.now);
  }
  if (refused.empty()) return;
  throw BaselineError(fmt::format("{}: its rows cannot be combined with those of {}:{}",
                                  other.source, first.source, refused));
}

void require_distinct(const std::vector<NamedResult>& results) {
  std::map<std::pair<std::string, std::string>, const std::string*> seen;
  for (const NamedResult& named : results) {
    for (const Record& record : named.result.records) {
      const auto [at, is_new] =
          seen.try_emplace({record.item.key(), record.provider}, &named.source);
      if (is_new) continue;
      throw BadInput(fmt::format("{} and {} both have {} on {}", *at->second, named.source,
                                 record.provider, record.item.key()));
    }
  }
}

void sort_by_case(std::vector<Record>& records) {
  std::map<std::string, size_t> order;
  for (const Record& record : records) order.try_emplace(record.item.key(), order.size());
  std::stable_sort(records.begin(), records.end(), [&](const Record& a, const Record& b) {
    return order.at(a.item.key()) < order.at(b.item.key());
  });
}

}  // namespace

SweepResult beside(std::vector<NamedResult> results) {
  for (const NamedResult& other : results) require_same_conditions(results.front(), other);
  require_distinct(results);
  SweepResult all = std::move(results.front().result);
  for (size_t i = 1; i < results.size(); ++i) {
    NamedResult& other = results[i];
    all.meta["beside"].push_back({{"file", other.source}, {"meta", other.result.meta}});
    for (const auto& device : other.result.devices) all.devices.push_back(device);
    for (Record& record : other.result.records) {
      if (record.source.empty()) record.source = other.source;
      all.records.push_back(std::move(record));
    }
  }
  sort_by_case(all.records);
  return all;
}

}  // namespace flashbench
