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

  size_t cases() const;            // of the sweep
  std::string cases_hash() const;  // of the sweep
};

// `sweep` has at least the number of cases as "cases" and their hash as "cases_hash".
nlohmann::ordered_json shard_json(const ShardPlan&, nlohmann::ordered_json sweep);

// Nothing if the meta of the result has no shard. Throws std::invalid_argument, naming the place,
// if it is not as above.
std::optional<ShardPart> shard_part(const nlohmann::ordered_json& meta);

}  // namespace flashbench
