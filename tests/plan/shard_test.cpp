#include "plan/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "attention/error.h"
#include "plan/config.h"

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

SweepConfig config_of(const std::string& lengths) {
  return parse_config(R"({"schema_version": 1, "name": "n", "cases": [{"seq": [)" + lengths +
                          R"(], "q_heads": 1, "head_dim": 8}]})",
                      "test", {});
}

// The number of the shard of each case.
std::map<std::string, int> numbers(const SweepConfig& config, int count) {
  std::map<std::string, int> found;
  for (int number = 1; number <= count; ++number) {
    for (const Case& item : config.cases) {
      if (!Shard{number, count}.has(item)) continue;
      EXPECT_TRUE(found.emplace(item.key(), number).second) << item.key() << " is in two shards";
    }
  }
  EXPECT_EQ(found.size(), config.cases.size());
  return found;
}

TEST(Shard, EveryCaseIsInOneWhateverTheOrder) {
  const auto forwards = numbers(config_of("1, 2, 3, 4, 5, 6, 7, 8"), 3);
  EXPECT_EQ(forwards, numbers(config_of("8, 7, 6, 5, 4, 3, 2, 1"), 3));
}

// Known keys: another program or machine must put them into the same shards.
TEST(Shard, TheHashOfTheKeyDecidesOnEveryMachine) {
  std::vector<int> found;
  for (const Case& item : config_of("1, 2, 3, 4, 5, 6, 7, 8").cases) {
    for (int number = 1; number <= 4; ++number) {
      if (Shard{number, 4}.has(item)) found.push_back(number);
    }
  }
  EXPECT_THAT(found, ElementsAre(4, 4, 4, 1, 1, 4, 3, 1));
}

TEST(Shard, AConfigKeepsItsCasesAndKnowsTheWhole) {
  const SweepConfig whole = config_of("1, 2, 3, 4, 5, 6, 7, 8");
  std::vector<std::string> keys(whole.cases.size());
  for (int number = 1; number <= 3; ++number) {
    SweepConfig part = whole;
    keep_shard(part, {number, 3});
    ASSERT_TRUE(part.shard);
    EXPECT_EQ(part.shard->cases, whole.cases.size());
    EXPECT_EQ(part.shard->cases_hash, cases_hash(whole.cases));
    ASSERT_EQ(part.shard->positions.size(), part.cases.size());
    EXPECT_TRUE(std::ranges::is_sorted(part.shard->positions));
    for (size_t i = 0; i < part.cases.size(); ++i) {
      keys[static_cast<size_t>(part.shard->positions[i])] = part.cases[i].key();
    }
  }
  EXPECT_EQ(cases_hash(keys), cases_hash(whole.cases));
}

TEST(Shard, TextAndFilesNameIt) {
  EXPECT_EQ(parse_shard("2/16"), (Shard{2, 16}));
  EXPECT_EQ((Shard{2, 16}).text(), "2/16");
  EXPECT_EQ((Shard{2, 16}).file_part(), ".shard-02-of-16");
  EXPECT_TRUE(is_shard_file("a.shard-02-of-16.json"));
  EXPECT_TRUE(is_shard_file("a.shard-02-of-16.json.gz"));
  EXPECT_FALSE(is_shard_file("a.shard-02-of-16.journal"));
  EXPECT_FALSE(is_shard_file("a.json"));
}

TEST(Shard, OtherTextIsRefused) {
  for (const char* text : {"", "1", "0/4", "5/4", "1/", "/4", "-1/4", "1/4/4", "1.0/4", " 1/4",
                           "1/4 ", "1/99999", "99999999999/99999999999", "a/b"}) {
    EXPECT_THAT([&] { parse_shard(text); },
                ThrowsMessage<BadInput>(HasSubstr("got \"" + std::string(text) + "\"")));
  }
}

}  // namespace
}  // namespace flashbench
