#include "compare/beside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/error.h"
#include "compare/comparable.h"
#include "report/json.h"
#include "sample_sweep.h"

namespace flashbench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

SweepResult rows(const std::vector<std::pair<std::string, int>>& providers_and_lengths) {
  std::mt19937 random(1);
  std::vector<Record> records;
  for (const auto& [provider, length] : providers_and_lengths) {
    records.push_back(timed_record(provider, length, Times(), random));
  }
  return sweep_of(std::move(records));
}

std::vector<std::string> shown(const SweepResult& result) {
  std::vector<std::string> texts;
  for (const Record& r : result.records) {
    texts.push_back(r.provider + " " + std::to_string(r.item.problem.q_len));
  }
  return texts;
}

TEST(Beside, PutsTheRowsOfACaseTogether) {
  const SweepResult all =
      beside({{"a.json", rows({{"naive", 64}, {"naive", 128}})},
              {"b.json", rows({{"torch", 128}, {"torch", 64}, {"torch", 32}})}});
  EXPECT_THAT(shown(all),
              ElementsAre("naive 64", "torch 64", "naive 128", "torch 128", "torch 32"));
}

TEST(Beside, NamesTheFileOfRowsThatAreNotOfTheFirst) {
  const SweepResult all =
      beside({{"a.json", rows({{"naive", 64}})}, {"b.json", rows({{"torch", 64}})}});
  EXPECT_EQ(all.records[0].source, "");
  EXPECT_EQ(all.records[1].source, "b.json");
  EXPECT_EQ(all.meta.at("beside").at(0).at("file"), "b.json");
  EXPECT_EQ(all.devices.size(), 2u);
}

TEST(Beside, TakesNoRatioOfTimesOfTwoRuns) {
  const SweepResult all =
      beside({{"a.json", rows({{"naive", 64}, {"tiled", 64}})}, {"b.json", rows({{"torch", 64}})}});
  EXPECT_TRUE(speedup_vs_naive(all.records[1], all.records));
  EXPECT_FALSE(speedup_vs_naive(all.records[2], all.records));
  const SweepResult again = result_from_json(to_json(all), "again");
  EXPECT_FALSE(speedup_vs_naive(again.records[2], again.records));
  EXPECT_EQ(to_json(again), to_json(all));
}

TEST(Beside, RefusesResultsOfOtherDevices) {
  SweepResult other = rows({{"torch", 64}});
  other.devices[0]["name"] = "Another CPU";
  EXPECT_THAT(
      [&] {
        beside({{"a.json", rows({{"naive", 64}})}, {"b.json", other}});
      },
      ThrowsMessage<BaselineError>(AllOf(HasSubstr("b.json"), HasSubstr("a.json"),
                                         HasSubstr("Some CPU"), HasSubstr("Another CPU"))));
}

TEST(Beside, RefusesTheSameRowTwice) {
  EXPECT_THAT(
      [] {
        beside({{"a.json", rows({{"naive", 64}})}, {"b.json", rows({{"naive", 64}})}});
      },
      ThrowsMessage<BadInput>(AllOf(HasSubstr("a.json"), HasSubstr("b.json"), HasSubstr("naive"))));
}

}  // namespace
}  // namespace flashbench
