#include "report/run_parts.h"

#include <gtest/gtest.h>

#include "report/csv.h"
#include "report/json.h"
#include "report/notes.h"
#include "sample_result.h"

namespace flashbench {
namespace {

// 1,040,000 elements each of Q, K and V, in 3 bytes each.
SweepResult rounded() {
  SweepResult result = sample_result();
  result.ceilings = {{"copy", "byte/s", "", 1.04e9, samples_of(0.001)}};
  Record record = sample_record("tiled", 0.001);
  record.item.problem = {.dtype = Dtype::bf16,
                         .q_heads = 5,
                         .kv_heads = 5,
                         .q_len = 2000,
                         .kv_len = 2000,
                         .head_dim = 104};
  record.item.problem.batch = 1;
  record.item.problem.quantize = Quantize::e4m3_head;
  record.measurement = samples_of(0.001);
  record.gemm.reset();
  record.parts = {{RunPart::rounding, samples_of(10e-6)}, {RunPart::attention, samples_of(0.0008)}};
  result.records = {record};
  return result;
}

TEST(RunParts, TheRateOfRoundingIsOfBytesReadAndWritten) {
  const SweepResult result = rounded();
  const Record& record = result.records[0];
  EXPECT_DOUBLE_EQ(*part_seconds(record, RunPart::attention), 0.0008);
  EXPECT_FALSE(part_seconds(record, RunPart::whole));
  EXPECT_DOUBLE_EQ(*rounding_bytes_per_second(record), 9.36e6 / 10e-6);
  EXPECT_DOUBLE_EQ(*rounding_share_of_copy(record, result), 0.9);
  EXPECT_EQ(notes(record, result).at(0),
            "alone, rounding takes 10 us (90% of copy), and the attention 800 us");
}

TEST(RunParts, WithoutThemOrACopyNothingIsSaid) {
  SweepResult result = rounded();
  result.ceilings.clear();
  EXPECT_FALSE(rounding_share_of_copy(result.records[0], result));
  EXPECT_EQ(notes(result.records[0], result).at(0),
            "alone, rounding takes 10 us, and the attention 800 us");
  result.records[0].parts.clear();
  EXPECT_FALSE(rounding_bytes_per_second(result.records[0]));
  EXPECT_TRUE(notes(result.records[0], result).empty());
  EXPECT_EQ(to_csv(result).find("rounding_us"), std::string::npos);
}

// Warm caches may serve it faster than memory copies.
TEST(RunParts, RoundingBeyondACopyHasNoShareOfIt) {
  SweepResult result = rounded();
  result.records[0].parts[0].measurement = samples_of(5e-6);
  EXPECT_FALSE(rounding_share_of_copy(result.records[0], result));
}

TEST(RunParts, ComeBackFromJson) {
  const SweepResult result = rounded();
  const SweepResult again = result_from_json(to_json(result), "parts");
  ASSERT_EQ(again.records[0].parts.size(), 2u);
  EXPECT_EQ(part_seconds(again.records[0], RunPart::rounding), 10e-6);
  EXPECT_EQ(to_json(again), to_json(result));
}

}  // namespace
}  // namespace flashbench
