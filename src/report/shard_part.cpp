#include "report/shard_part.h"

#include "plan/config.h"
#include "plan/strict_json.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

Shard shard_from(const StrictJson& json) {
  const Shard shard{json.at("number"), json.at("count")};
  if (shard.count < 1 || shard.count > kMaxShards) {
    json.at("count").fail("from 1 to " + std::to_string(kMaxShards));
  }
  if (shard.number < 1 || shard.number > shard.count) {
    json.at("number").fail("from 1 to the count of shards");
  }
  return shard;
}

// Positions must ascend, so that none is there twice, and be those of cases.
std::vector<int> positions_from(const StrictJson& json, int64_t cases) {
  const std::vector<int> positions = json;
  int64_t least = 0;
  for (int position : positions) {
    if (position < least || position >= cases) json.fail("ascending positions of cases");
    least = position + 1;
  }
  return positions;
}

// As many as a config can have: whoever reads this makes room for all of them.
int64_t cases_from(const StrictJson& json) {
  const int64_t cases = json;
  if (cases < 1 || cases > kMaxCases) json.fail("from 1 to " + std::to_string(kMaxCases));
  return cases;
}

}  // namespace

size_t ShardPart::cases() const {
  return sweep.at("cases").get<size_t>();
}

std::string ShardPart::cases_hash() const {
  return sweep.at("cases_hash").get<std::string>();
}

std::vector<std::string> ShardPart::providers() const {
  return sweep.at("providers").get<std::vector<std::string>>();
}

Json shard_json(const ShardPlan& plan, Json sweep) {
  return {{"number", plan.shard.number},
          {"count", plan.shard.count},
          {"positions", plan.positions},
          {"sweep", std::move(sweep)}};
}

std::optional<ShardPart> shard_part(const Json& meta) {
  const StrictJson all(meta, "/meta");
  if (!all.contains("shard")) return std::nullopt;
  const StrictJson json = all.at("shard"), sweep = json.at("sweep");
  const int64_t cases = cases_from(sweep.at("cases"));
  static_cast<void>(std::string{sweep.at("cases_hash")});
  [[maybe_unused]] const std::vector<std::string> providers = sweep.at("providers");
  return ShardPart{shard_from(json), positions_from(json.at("positions"), cases), sweep.json()};
}

}  // namespace flashbench
