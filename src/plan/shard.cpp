#include "plan/shard.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "attention/error.h"
#include "files/checksum.h"
#include "plan/config.h"

namespace flashbench {

namespace {

// The number that is all of the text, if it is one from 1 to kMaxShards.
std::optional<int> shard_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 1 && number <= kMaxShards ? std::optional(number) : std::nullopt;
}

int digits(int number) {
  return static_cast<int>(std::to_string(number).size());
}

}  // namespace

bool Shard::has(const Case& item) const {
  const std::string key = item.key();
  return checksum(key.data(), key.size()) % static_cast<uint64_t>(count) ==
         static_cast<uint64_t>(number - 1);
}

std::string Shard::text() const {
  return fmt::format("{}/{}", number, count);
}

std::string Shard::file_part() const {
  return fmt::format(".shard-{:0{}}-of-{}", number, digits(count), count);
}

Shard parse_shard(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const auto number = shard_number(text.substr(0, slash));
    const auto count = shard_number(text.substr(slash + 1));
    if (number && count && *number <= *count) return {*number, *count};
  }
  throw BadInput(
      fmt::format("--shard: expected NUMBER/COUNT, with a number from 1 to COUNT and a count of at "
                  "most {}, e.g. 2/16, got \"{}\"",
                  kMaxShards, text));
}

bool is_shard_file(const std::string& file_name) {
  return file_name.find(".shard-") != std::string::npos &&
         (file_name.ends_with(".json") || file_name.ends_with(".json.gz"));
}

std::string cases_hash(const std::vector<std::string>& keys) {
  std::string lines;
  for (const std::string& key : keys) lines += key + "\n";
  return checksum_text(lines);
}

std::string cases_hash(const std::vector<Case>& cases) {
  std::vector<std::string> keys;
  for (const Case& item : cases) keys.push_back(item.key());
  return cases_hash(keys);
}

std::string named_for_shard(const std::string& name, const std::optional<ShardPlan>& plan) {
  return plan ? name + plan->shard.file_part() : name;
}

void keep_shard(SweepConfig& config, Shard shard) {
  ShardPlan plan{shard, {}, config.cases.size(), cases_hash(config.cases)};
  std::vector<Case> kept;
  for (size_t i = 0; i < config.cases.size(); ++i) {
    if (!shard.has(config.cases[i])) continue;
    plan.positions.push_back(static_cast<int>(i));
    kept.push_back(std::move(config.cases[i]));
  }
  config.cases = std::move(kept);
  config.shard = std::move(plan);
}

}  // namespace flashbench
