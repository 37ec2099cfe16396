// Divides the cases of a sweep into shards, which other processes or machines run.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flashbench {

struct Case;
struct SweepConfig;

// One of `count` parts, by its number from 1 on.
struct Shard {
  int number = 1, count = 1;

  // Whether a case belongs to this shard. The hash of its key decides, so that it is the same on
  // every machine and in every order of the cases.
  bool has(const Case&) const;

  std::string text() const;       // "2/16"
  std::string file_part() const;  // ".shard-02-of-16", as wide for each number
  bool operator==(const Shard&) const = default;
};

inline constexpr int kMaxShards = 9999;

Shard parse_shard(std::string_view text);  // "2/16"; throws BadInput

// Whether a file of this name has the result of a shard: "NAME.shard-02-of-16.json", or compressed.
bool is_shard_file(const std::string& file_name);

// What a config that was reduced to a shard knows of the whole sweep.
struct ShardPlan {
  Shard shard;
  std::vector<int> positions;  // of its cases among those of the sweep, from 0, ascending
  size_t cases = 0;            // of the sweep
  std::string cases_hash;      // of the sweep
};

// The hash of the keys of these cases, in order.
std::string cases_hash(const std::vector<std::string>& keys);
std::string cases_hash(const std::vector<Case>&);

// A name that no other shard has: "NAME.shard-02-of-16", or NAME for a whole sweep.
std::string named_for_shard(const std::string& name, const std::optional<ShardPlan>&);

// Reduces the config to the cases of the shard, perhaps none.
void keep_shard(SweepConfig&, Shard);

}  // namespace flashbench
