#include "report/memory_bound.h"

#include <gtest/gtest.h>

#include <memory>

#include "measure/round_ceilings.h"
#include "report/csv.h"
#include "report/json.h"
#include "report/notes.h"
#include "sample_result.h"

namespace flashbench {
namespace {

// Decoding in 1 ms: K and V are 8,388,608 bytes, O and Q 8,192 each.
SweepResult decoding() {
  SweepResult result = sample_result();
  result.ceilings = {{"read", "byte/s", "", 16'816'128, samples_of(0.001)}};
  Record record = sample_record("tiled", 0.001);
  record.item.problem = {.dtype = Dtype::bf16,
                         .q_heads = 32,
                         .kv_heads = 8,
                         .q_len = 1,
                         .kv_len = 2048,
                         .head_dim = 128};
  record.item.problem.batch = 1;
  record.measurement = samples_of(0.001);
  record.gemm = samples_of(0.001);
  record.gemm_flops = 1e12;
  record.round_ceilings = {{"stream", "byte/s", "", 8'404'992, samples_of(0.0008)},
                           {"null_launch", "launch/s", "", 1, samples_of(0.000002)}};
  result.records = {record};
  return result;
}

TEST(MemoryBound, SharesAreOfTheRowsOwnTime) {
  const SweepResult result = decoding();
  const Record& record = result.records[0];
  ASSERT_EQ(record.item.problem.kv_bytes(), 8'388'608);
  EXPECT_DOUBLE_EQ(*kv_bytes_per_second(record, result), 8'388'608 / 0.001);
  const double read = static_cast<double>(record.item.problem.compulsory_bytes()) / 16'816'128e3;
  EXPECT_DOUBLE_EQ(*share_of_read(record, result), read / 0.001);
  EXPECT_DOUBLE_EQ(*share_of_stream(record), 0.8);
  EXPECT_DOUBLE_EQ(*fixed_seconds(record, result), 0.001 - read);
  EXPECT_TRUE(notes(record, result).empty());
}

TEST(MemoryBound, AreThereOnlyWhereMemoryIsTheLimit) {
  SweepResult result = decoding();
  result.records[0].gemm_flops = 1e6;  // so slow that the products take longer than the reads
  EXPECT_FALSE(fixed_seconds(result.records[0], result));
  EXPECT_TRUE(share_of_read(result.records[0], result));
  result.records[0].item.problem.pass = Pass::backward;
  EXPECT_FALSE(kv_bytes_per_second(result.records[0], result));
  EXPECT_FALSE(share_of_read(result.records[0], result));
  EXPECT_FALSE(share_of_stream(result.records[0]));
}

TEST(MemoryBound, ARowBeyondACeilingHasNoShareOfIt) {
  SweepResult result = decoding();
  Record& record = result.records[0];
  record.measurement = samples_of(0.0004);
  EXPECT_FALSE(share_of_read(record, result));
  EXPECT_FALSE(share_of_stream(record));
  EXPECT_FALSE(fixed_seconds(record, result));
  ASSERT_EQ(notes(record, result).size(), 2u);
  EXPECT_EQ(notes(record, result)[0].find("no % of read: caches were cold"), 0u);
  EXPECT_EQ(notes(record, result)[1].find("no % of stream: it takes 200% of the row's time"), 0u);
  record.measurement->cache = CacheState::warm;  // caches served it
  EXPECT_EQ(notes(record, result).size(), 1u);
}

TEST(MemoryBound, OfResultsWithoutCeilingsNothingIsSaid) {
  SweepResult result = decoding();
  result.ceilings.clear();
  result.records[0].round_ceilings.clear();
  EXPECT_FALSE(share_of_read(result.records[0], result));
  EXPECT_FALSE(share_of_stream(result.records[0]));
  EXPECT_FALSE(kv_bytes_per_second(result.records[0], result));
  for (const char* column : {"stream", "kv_bytes_per_s", "pct_of_read", "fixed_us"}) {
    EXPECT_EQ(to_csv(result).find(column), std::string::npos) << column;
  }
}

TEST(MemoryBound, VariationAndWasteAreOfTheRequests) {
  Problem p = decoding().records[0].item.problem;
  EXPECT_FALSE(length_variation(p));
  EXPECT_FALSE(page_waste(p));
  p.set_lengths(std::make_shared<const Lengths>(std::vector<RequestLengths>{{1, 10}, {1, 30}}));
  EXPECT_DOUBLE_EQ(*length_variation(p), 0.5);
  p.page_size = 16;
  EXPECT_DOUBLE_EQ(*page_waste(p), 1 - 40.0 / 48);
  p.page_size = 10;
  EXPECT_DOUBLE_EQ(*page_waste(p), 0);
}

TEST(MemoryBound, CeilingsOfTheRoundsScheduleAndPlanComeBack) {
  SweepResult result = decoding();
  result.records[0].schedule =
      Schedule{.splits = 16, .workers = 128, .partial_bytes = 4096, .imbalance = 1.25};
  result.records[0].plan_seconds = 3e-6;
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(again.records[0].schedule, result.records[0].schedule);
  EXPECT_EQ(again.records[0].plan_seconds, 3e-6);
  ASSERT_NE(round_ceiling(again.records[0], kStream), nullptr);
  EXPECT_EQ(round_ceiling(again.records[0], kStream)->measurement.seconds,
            std::vector<double>(3, 0.0008));
  EXPECT_EQ(to_json(again), to_json(result));
  const std::string csv = to_csv(again);
  EXPECT_EQ(csv, to_csv(result));
  EXPECT_NE(csv.find(",stream_us,null_launch_us,fixed_us,splits,workers,partial_bytes,imbalance,"
                     "plan_us\r\n"),
            std::string::npos);
  EXPECT_NE(csv.find(",800,2,"), std::string::npos);
  EXPECT_NE(csv.find(",16,128,4096,1.25,3\r\n"), std::string::npos);
}

}  // namespace
}  // namespace flashbench
