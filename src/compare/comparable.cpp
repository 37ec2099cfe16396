#include "compare/comparable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "attention/error.h"
#include "plan/json_text.h"
#include "plan/nearest.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

enum class Place { device, meta };

// The place of each condition in a result.
struct Key {
  const char* name;
  Place place;
  const char* pointer;
};

constexpr Key kKeys[] = {
    {"device_kind", Place::device, "/kind"},
    {"device", Place::device, "/name"},
    {"instructions", Place::device, "/instructions"},
    {"threads", Place::device, "/threads"},
    {"blas", Place::device, "/libraries/openblas"},
    {"blas_core", Place::device, "/libraries/openblas_core"},
    {"build_type", Place::meta, "/build_type"},
    {"sanitizers", Place::meta, "/sanitizers"},
    {"compiler", Place::meta, "/compiler"},
    {"flop_rule", Place::meta, "/flop_rule"},
    {"byte_rule", Place::meta, "/byte_rule"},
    {"inputs", Place::meta, "/inputs"},
};
constexpr const char* kCacheKey = "cache";

std::string text_at(const Json& json, const char* pointer) {
  const Json::json_pointer place(pointer);
  if (!json.contains(place)) return "";
  const Json& value = json.at(place);
  // Sorted: shards have their files of inputs in another order than the whole.
  return value.is_string() ? value.get<std::string>() : nlohmann::json(value).dump();
}

std::vector<Condition> with_cache(const Json& meta, const Json& devices, std::string cache) {
  std::vector<Condition> result;
  for (const Key& key : kKeys) {
    const Json& json = key.place == Place::meta ? meta : devices.at(0);
    result.push_back({key.name, text_at(json, key.pointer)});
  }
  result.push_back({kCacheKey, std::move(cache)});
  return result;
}

// "warm", "cold", "cold and warm"; empty if nothing was timed.
std::string cache_states(const std::vector<Record>& records) {
  std::set<std::string_view> states;
  for (const Record& record : records) {
    if (record.measurement) states.insert(name(record.measurement->cache));
  }
  return fmt::format("{}", fmt::join(states, " and "));
}

std::string quoted(const std::string& value) {
  return value.empty() ? "nothing" : fmt::format("\"{}\"", printable(value));
}

}  // namespace

std::vector<Condition> conditions(const SweepResult& result) {
  return with_cache(result.meta, result.devices, cache_states(result.records));
}

std::vector<Condition> conditions(const Json& meta, const Json& devices, CacheState cache) {
  return with_cache(meta, devices, std::string(name(cache)));
}

std::vector<std::string> condition_keys() {
  std::vector<std::string> keys;
  for (const Key& key : kKeys) keys.emplace_back(key.name);
  keys.emplace_back(kCacheKey);
  return keys;
}

void require_known_keys(const std::vector<std::string>& keys) {
  const std::vector<std::string> known = condition_keys();
  for (const std::string& key : keys) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw BadInput(fmt::format("--allow-different: expected one of {}, got \"{}\"{}",
                               fmt::join(known, ", "), key, did_you_mean(key, known)));
  }
}

std::vector<Difference> differences(const std::vector<Condition>& base,
                                    const std::vector<Condition>& now) {
  std::vector<Difference> result;
  for (size_t i = 0; i < base.size(); ++i) {
    const bool untimed =
        base[i].key == kCacheKey && (base[i].value.empty() || now[i].value.empty());
    if (base[i].value != now[i].value && !untimed) {
      result.push_back({base[i].key, base[i].value, now[i].value});
    }
  }
  return result;
}

std::vector<Difference> require_comparable(const std::string& source,
                                           const std::vector<Condition>& base,
                                           const std::vector<Condition>& now,
                                           const std::vector<std::string>& allowed) {
  require_known_keys(allowed);
  std::vector<Difference> all = differences(base, now);
  std::string refused;
  for (const Difference& difference : all) {
    if (std::find(allowed.begin(), allowed.end(), difference.key) != allowed.end()) continue;
    refused += fmt::format("\n  {}: {} in the baseline, {} now", difference.key,
                           quoted(difference.base), quoted(difference.now));
  }
  if (refused.empty()) return all;
  throw BaselineError(fmt::format("{}: not comparable (--allow-different KEY compares anyway):{}",
                                  source, refused));
}

}  // namespace flashbench
