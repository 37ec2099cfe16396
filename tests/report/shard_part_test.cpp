#include "report/shard_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Json = nlohmann::ordered_json;

Json meta() {
  return {{"shard", shard_json({{2, 3}, {0, 4}, 5, "abc"},
                               {{"cases", 5}, {"cases_hash", "abc"}, {"providers", {"a", "b"}}})}};
}

TEST(ShardPart, WhatIsWrittenIsReadBack) {
  const auto part = shard_part(meta());
  ASSERT_TRUE(part);
  EXPECT_EQ(part->shard, (Shard{2, 3}));
  EXPECT_EQ(part->positions, (std::vector<int>{0, 4}));
  EXPECT_EQ(part->cases(), 5u);
  EXPECT_EQ(part->cases_hash(), "abc");
  EXPECT_EQ(part->providers(), (std::vector<std::string>{"a", "b"}));
}

TEST(ShardPart, AWholeResultHasNone) {
  EXPECT_FALSE(shard_part(Json::object()));
}

TEST(ShardPart, OtherContentIsRefusedWithItsPlace) {
  const auto changed = [](const char* pointer, const Json& value) {
    Json json = meta();
    json[Json::json_pointer(pointer)] = value;
    return json;
  };
  const auto refused = [](const Json& json, const char* place) {
    EXPECT_THAT([&] { shard_part(json); }, ThrowsMessage<std::invalid_argument>(
                                               HasSubstr(std::string("/meta/shard") + place)));
  };
  refused(changed("/shard", 3), "");
  refused(changed("/shard/number", 0), "/number");
  refused(changed("/shard/number", 4), "/number");
  refused(changed("/shard/count", 0), "/count");
  refused(changed("/shard/count", 100000), "/count");
  refused(changed("/shard/positions", {4, 0}), "/positions");
  refused(changed("/shard/positions", {1, 1}), "/positions");
  refused(changed("/shard/positions", {0, 5}), "/positions");
  refused(changed("/shard/positions", {-1}), "/positions");
  refused(changed("/shard/sweep/cases", 0), "/sweep/cases");
  refused(changed("/shard/sweep/cases", 20001), "/sweep/cases: expected from 1 to 20000, found 20");
  refused(changed("/shard/sweep/cases", int64_t{1} << 62), "/sweep/cases");
  refused(changed("/shard/sweep/providers", 7), "/sweep/providers");
  refused(changed("/shard/sweep/providers", {1}), "/sweep/providers");
  refused(changed("/shard/sweep/cases_hash", 7), "/sweep/cases_hash");
}

}  // namespace
}  // namespace flashbench
