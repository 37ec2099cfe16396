// The part of a result that says which shard of a sweep it is: "shard" in its meta.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <vector>

#include "plan/shard.h"

namespace flashbench {

struct ShardPart {
  Shard shard;
  std::vector<int> positions;    // of its cases among those of the sweep
  nlohmann::ordered_json sweep;  // what all shards must have in common: cases, options, providers

  // Of the sweep.
  size_t cases() const;
  std::string cases_hash() const;
  std::vector<std::string> providers() const;
};

// `sweep` has at least the number of cases as "cases", their hash as "cases_hash" and the names of
// the providers as "providers".
nlohmann::ordered_json shard_json(const ShardPlan&, nlohmann::ordered_json sweep);

// Nothing if the meta of the result has no shard. Throws std::invalid_argument, naming the place,
// if it is not as above.
std::optional<ShardPart> shard_part(const nlohmann::ordered_json& meta);

}  // namespace flashbench
