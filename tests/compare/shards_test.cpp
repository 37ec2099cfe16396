#include "compare/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/error.h"
#include "compare/comparable.h"
#include "report/json.h"
#include "report/shard_part.h"
#include "sample_sweep.h"

namespace flashbench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

constexpr int kLengths[] = {512, 16, 64, 128, 32, 256, 48, 96, 80, 112};

// The whole sweep: two providers on each length.
SweepResult whole() {
  std::mt19937 random(1);
  std::vector<Record> records;
  for (int length : kLengths) {
    for (const char* provider : {"naive", "tiled"}) {
      records.push_back(timed_record(provider, length, Times(), random));
    }
  }
  return sweep_of(std::move(records));
}

std::vector<std::string> keys_of(const SweepResult& result) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < result.records.size(); i += 2) {
    keys.push_back(result.records[i].item.key());
  }
  return keys;
}

SweepResult part_of(SweepResult result, Shard shard) {
  const std::vector<std::string> keys = keys_of(result);
  ShardPlan plan{shard, {}, keys.size(), cases_hash(keys)};
  for (size_t i = 0; i < keys.size(); ++i) {
    if (shard.has(result.records[2 * i].item)) plan.positions.push_back(static_cast<int>(i));
  }
  result.meta["shard"] = shard_json(plan, {{"cases", plan.cases},
                                           {"cases_hash", plan.cases_hash},
                                           {"providers", {"naive", "tiled"}},
                                           {"options", {{"max", 5}}}});
  std::erase_if(result.records, [&](const Record& record) { return !shard.has(record.item); });
  return result;
}

NamedResult named(int number, int count = 3) {
  return {std::to_string(number) + ".json", part_of(whole(), {number, count})};
}

std::vector<std::string> rows_of(const SweepResult& result) {
  std::vector<std::string> rows;
  for (const Record& record : result.records) rows.push_back(record.provider + record.item.key());
  return rows;
}

auto refuses(const std::vector<NamedResult>& shards) {
  return [shards] { joined(shards); };
}

TEST(Shards, JoinedHaveTheRowsOfTheSweepInItsOrder) {
  for (int count : {1, 2, 3, 20}) {  // of 20 shards some are empty
    std::vector<NamedResult> shards;
    for (int number = count; number >= 1; --number) shards.push_back(named(number, count));
    EXPECT_EQ(rows_of(joined(shards)), rows_of(whole())) << count;
  }
}

TEST(Shards, TheResultNamesItsFilesAndReadsBack) {
  const SweepResult all = joined({named(1), named(2), named(3)});
  EXPECT_FALSE(is_shard(all));
  ASSERT_EQ(all.meta.at("shards").size(), 3u);
  EXPECT_EQ(all.meta.at("shards").at(1).at("file"), "2.json");
  for (const Record& record : all.records) {
    bool found = false;
    for (int number = 1; number <= 3; ++number) {
      if (!Shard{number, 3}.has(record.item)) continue;
      EXPECT_EQ(record.source, std::to_string(number) + ".json");
      found = true;
    }
    EXPECT_TRUE(found);
    EXPECT_TRUE(speedup_vs_naive(record, all.records));
  }
  EXPECT_EQ(to_json(result_from_json(to_json(all), "again")), to_json(all));
}

// Each shard knows the files that its own cases read.
TEST(Shards, TogetherHaveTheFilesOfAllInputs) {
  const nlohmann::ordered_json all{{"q.npy", "1"}, {"k.npy", "2"}, {"v.npy", "3"}};
  std::vector<NamedResult> shards{named(1), named(2), named(3)};
  shards[0].result.meta["inputs"] = {{"q.npy", "1"}, {"k.npy", "2"}};
  shards[2].result.meta["inputs"] = {{"k.npy", "2"}, {"v.npy", "3"}};
  EXPECT_EQ(joined(shards).meta.at("inputs"), all);
  shards[2].result.meta["inputs"]["k.npy"] = "4";
  EXPECT_THAT(refuses(shards),
              ThrowsMessage<BaselineError>(
                  HasSubstr("3.json: k.npy held something else than for the shards before")));
}

TEST(Shards, DevicesThatDifferInTheMachineAloneAreBothNamed) {
  NamedResult other = named(2);
  other.result.devices[0]["index"] = 3;
  other.result.devices[0]["memory_bytes"] = 1000;
  EXPECT_EQ(joined({named(1), other, named(3)}).devices.size(), 2u);
}

TEST(Shards, ARowIsComparedWithTheCeilingsOfItsMachine) {
  const auto with_read = [](NamedResult shard, double rate) {
    Ceiling read{"read", "byte/s", "", rate, {}};
    read.measurement.seconds = {1};
    shard.result.ceilings = {read};
    return shard;
  };
  const SweepResult all =
      joined({with_read(named(1), 1e9), with_read(named(2), 2e9), with_read(named(3), 3e9)});
  for (const Record& record : all.records) {
    const Ceiling* read = measured_ceiling(record, "read", all);
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(read->rate(), 1e9 * (record.source[0] - '0'));
  }
  EXPECT_EQ(to_json(result_from_json(to_json(all), "again")), to_json(all));
}

TEST(Shards, OfAnotherSweepAreRefusedWithWhatDiffers) {
  const auto changed = [](const char* part, const char* pointer, const char* value) {
    NamedResult other = named(2);
    const nlohmann::ordered_json::json_pointer place(pointer);
    if (part == std::string("device")) {
      other.result.devices[0][place] = value;
    } else {
      (part == std::string("meta") ? other.result.meta : other.result.config)[place] = value;
    }
    return std::vector<NamedResult>{named(1), other, named(3)};
  };
  const auto says = [](const std::string& text) {
    return ThrowsMessage<BaselineError>(
        AllOf(HasSubstr("1.json"), HasSubstr("2.json"), HasSubstr(text)));
  };
  EXPECT_THAT(refuses(changed("device", "/name", "Another CPU")),
              says("/device/name: \"Some CPU\" there, \"Another CPU\" here"));
  EXPECT_THAT(refuses(changed("device", "/libraries/openblas", "0")),
              says("/device/libraries/openblas"));
  EXPECT_THAT(refuses(changed("meta", "/git_commit", "abd")),
              says("/build/git_commit: \"abc\" there, \"abd\" here"));
  EXPECT_THAT(refuses(changed("meta", "/compiler", "Clang")), says("/build/compiler"));
  EXPECT_THAT(refuses(changed("config", "/name", "other")),
              says("/config/name: \"sample\" there, \"other\" here"));
  EXPECT_THAT(refuses(changed("meta", "/shard/sweep/options/max", "6")),
              says("/sweep/options/max: 5 there, \"6\" here"));
  EXPECT_THAT(refuses({named(1), named(2, 4), named(3)}), says("/shards: 3 there, 4 here"));
}

TEST(Shards, EachMustBeThereOnce) {
  EXPECT_THAT(refuses({named(1), named(3)}),
              ThrowsMessage<BadInput>(AllOf(HasSubstr("all 3 shards"), HasSubstr("missing: 2"))));
  EXPECT_THAT(refuses({named(2)}), ThrowsMessage<BadInput>(HasSubstr("missing: 1, 3")));
  NamedResult again = named(2);
  again.source = "again.json";
  EXPECT_THAT(refuses({named(1), named(2), again, named(3)}),
              ThrowsMessage<BadInput>(HasSubstr("2.json and again.json are both shard 2/3")));
}

TEST(Shards, AnUnfinishedOneIsRefused) {
  NamedResult unfinished = named(2);
  unfinished.result.records.resize(2);
  EXPECT_THAT(refuses({named(1), unfinished, named(3)}),
              ThrowsMessage<BadInput>(
                  AllOf(HasSubstr("2.json: shard 2/3 has 1 of its"), HasSubstr("--resume"))));
}

TEST(Shards, RowsOfAnotherShardAreRefused) {
  NamedResult overlapping = named(2);
  const Record foreign = named(1).result.records.front();
  overlapping.result.records.push_back(foreign);
  EXPECT_THAT(refuses({named(1), overlapping, named(3)}),
              ThrowsMessage<BadInput>(AllOf(HasSubstr("2.json: shard 2/3 has a case of another"),
                                            HasSubstr(foreign.item.key()))));
}

TEST(Shards, RowsOfAProviderThatAreMissingAreRefused) {
  NamedResult shard = named(2);
  std::erase_if(shard.result.records, [](const Record& row) { return row.provider == "naive"; });
  EXPECT_THAT(refuses({named(1), shard, named(3)}),
              ThrowsMessage<BadInput>(
                  AllOf(HasSubstr("2.json: shard 2/3 lacks the row of naive in forward/"),
                        HasSubstr(shard.result.records.front().item.key()))));
}

TEST(Shards, RowsOfAnotherProviderAreRefused) {
  NamedResult shard = named(2);
  shard.result.records.push_back(shard.result.records.front());
  shard.result.records.back().provider = "wonder";
  EXPECT_THAT(refuses({named(1), shard, named(3)}),
              ThrowsMessage<BadInput>(
                  HasSubstr("2.json: expected rows of naive, tiled, found one of wonder")));
}

TEST(Shards, CasesInAnotherOrderAreRefused) {
  NamedResult swapped = named(1);
  auto& records = swapped.result.records;
  ASSERT_GE(records.size(), 4u);
  std::rotate(records.begin(), records.begin() + 2, records.end());
  EXPECT_THAT(refuses({swapped, named(2), named(3)}),
              ThrowsMessage<BadInput>(HasSubstr("do not have the 10 cases of the sweep")));
}

TEST(Shards, AmongOtherResultsBecomeOneInTheFirstOnesPlace) {
  const NamedResult other{"other.json", whole()};
  const std::vector<NamedResult> results =
      with_shards_joined({other, named(2), named(1), other, named(3)});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1].source, "2.json and 2 more");
  EXPECT_EQ(rows_of(results[1].result), rows_of(whole()));
  EXPECT_FALSE(is_shard(results[1].result));
}

TEST(Shards, OneAloneStaysAsItIs) {
  EXPECT_TRUE(is_shard(with_shards_joined({named(2)}).front().result));
}

}  // namespace
}  // namespace flashbench
