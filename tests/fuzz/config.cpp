#include "plan/config.h"

#include <set>

#include "attention/error.h"
#include "fuzz/targets.h"

namespace flashbench::fuzz {

namespace {

std::set<std::string> keys(const SweepConfig& config) {
  std::set<std::string> keys;
  for (const Case& item : config.cases) {
    const auto wrong = item.problem.invalid();
    require(!wrong, "an accepted config has an invalid problem: " + wrong.value_or(""));
    require(keys.insert(item.key()).second, "a case is there twice: " + item.key());
  }
  require(keys.size() <= kMaxCases, "more cases than a sweep may have");
  return keys;
}

}  // namespace

void config(std::string_view bytes) {
  try {
    const SweepConfig config = parse_config(bytes, "fuzz.json", {});
    const std::string kept = config.json.dump();
    require(keys(parse_config(kept, "kept.json", {})) == keys(config),
            "the config kept in a result has other cases than the file");
  } catch (const ConfigError&) {
  } catch (const FileError&) {  // of lengths
  }
}

}  // namespace flashbench::fuzz
