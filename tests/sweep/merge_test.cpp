#include "sweep/merge.h"

#include <gtest/gtest.h>

#include "tests/report/sample_result.h"

namespace flashbench {
namespace {

JournalEntry entry(int repetition, std::vector<Record> records) {
  const std::string key = records.at(0).item.key();
  return {key, repetition, std::move(records)};
}

Record timed(std::vector<double> seconds) {
  Record record = sample_record("tiled", 1);
  record.measurement = Measurement{std::move(seconds), 1, CacheState::warm, "interval"};
  record.gemm = Measurement{{1, 1}, 1, CacheState::warm, "interval"};
  return record;
}

Record crashed() {
  Record record = sample_record("tiled", 1);
  record.status = Status::crashed;
  record.reason = "it died";
  record.measurement.reset();
  record.gemm.reset();
  return record;
}

TEST(Merge, ASingleRepetitionStaysAsItIs) {
  const auto records = merged({entry(0, {timed({1, 2, 3})})});
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].measurement->seconds, (std::vector<double>{1, 2, 3}));
  EXPECT_TRUE(records[0].measurement->samples_per_process.empty());
}

TEST(Merge, SamplesOfRepetitionsStandOneAfterAnother) {
  const auto records =
      merged({entry(0, {timed({1, 2, 3})}), entry(1, {timed({4, 5})}), entry(2, {timed({6})})});
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].measurement->seconds, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(records[0].measurement->samples_per_process, (std::vector<int>{3, 2, 1}));
  EXPECT_EQ(records[0].gemm->samples_per_process, (std::vector<int>{2, 2, 2}));
}

TEST(Merge, GemmsOfOtherSizesCountForEachFlop) {
  Record larger = timed({4, 5});
  larger.gemm_flops *= 8;
  const auto records = merged({entry(0, {timed({1, 2})}), entry(1, {larger})});
  EXPECT_EQ(records[0].gemm->seconds, (std::vector<double>{1, 1, 0.125, 0.125}));
}

TEST(Merge, CoarseOnceIsCoarse) {
  Record coarse = timed({1});
  coarse.verdict.coarse = "far off";
  const auto records = merged({entry(0, {timed({1})}), entry(1, {coarse}), entry(2, {timed({1})})});
  EXPECT_EQ(records[0].verdict.coarse, "far off");
}

TEST(Merge, CoreTimesAndLoadAreOfAllRepetitionsOrOfNone) {
  Record first = timed({1, 2}), second = timed({3}), silent = timed({4});
  first.measurement->core_times = {{1, 0}, {2, 0.5}};
  first.measurement->load = Load{1, 2, 0.5, 0};
  second.measurement->core_times = {{3, 0}};
  second.measurement->load = Load{3, 2, 0.5, 0};
  const auto both = merged({entry(0, {first}), entry(1, {second})});
  ASSERT_EQ(both[0].measurement->core_times.size(), 3u);
  EXPECT_EQ(both[0].measurement->core_times[1].waited, 0.5);
  EXPECT_EQ(both[0].measurement->core_times[2].ran, 3);
  EXPECT_DOUBLE_EQ(both[0].measurement->load->others_cores(), 0.25);
  for (const auto& entries : {std::vector{entry(0, {first}), entry(1, {silent})},
                              std::vector{entry(0, {silent}), entry(1, {first})}}) {
    const auto one = merged(entries);
    EXPECT_TRUE(one[0].measurement->core_times.empty());
    EXPECT_FALSE(one[0].measurement->load);
  }
}

TEST(Merge, CeilingsOfTheRoundsAreThoseThatEveryProcessMeasured) {
  const auto ceiling = [](const char* name, double seconds) {
    return Ceiling{name, "byte/s", "", 1, {{seconds}, 1, CacheState::warm, "interval"}};
  };
  Record first = timed({1}), second = timed({2});
  first.round_ceilings = {ceiling("stream", 3), ceiling("null_launch", 4)};
  second.round_ceilings = {ceiling("stream", 5)};
  const auto records = merged({entry(0, {first}), entry(1, {second})});
  ASSERT_EQ(records[0].round_ceilings.size(), 1u);
  EXPECT_EQ(records[0].round_ceilings[0].measurement.seconds, (std::vector<double>{3, 5}));
}

TEST(Merge, PartsAreThoseThatEveryProcessMeasured) {
  const auto part = [](RunPart which, double seconds) {
    return PartTime{which, {{seconds}, 1, CacheState::warm, "interval"}};
  };
  Record first = timed({1}), second = timed({2});
  first.parts = {part(RunPart::rounding, 3), part(RunPart::attention, 4)};
  second.parts = {part(RunPart::attention, 5)};
  const auto records = merged({entry(0, {first}), entry(1, {second})});
  ASSERT_EQ(records[0].parts.size(), 1u);
  EXPECT_EQ(records[0].parts[0].measurement.seconds, (std::vector<double>{4, 5}));
  EXPECT_TRUE(merged({entry(0, {first}), entry(1, {crashed()})})[0].parts.empty());
}

TEST(Merge, ARepetitionThatFailedStandsForAll) {
  for (const auto& entries :
       {std::vector{entry(0, {timed({1})}), entry(1, {crashed()}), entry(2, {timed({2})})},
        std::vector{entry(0, {timed({1})}), entry(1, {timed({2})}), entry(2, {crashed()})}}) {
    const auto records = merged(entries);
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].status, Status::crashed);
    EXPECT_NE(records[0].reason.find("in repetition "), std::string::npos) << records[0].reason;
    EXPECT_FALSE(records[0].measurement);
  }
}

TEST(Merge, AnEntryThatComesAgainReplacesTheEarlierOne) {
  const auto records = merged({entry(0, {crashed()}), entry(0, {timed({1, 2})})});
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].status, Status::ok);
}

TEST(Merge, CasesKeepTheOrderInWhichTheyFirstCame) {
  Record other = timed({1});
  other.item.problem.head_dim = 8;  // sorts elsewhere
  const auto records = merged(
      {entry(0, {timed({1})}), entry(0, {other}), entry(1, {other}), entry(1, {timed({2})})});
  ASSERT_EQ(records.size(), 2u);
  EXPECT_NE(records[0].item.problem.head_dim, 8);
  EXPECT_EQ(records[1].item.problem.head_dim, 8);
}

}  // namespace
}  // namespace flashbench
