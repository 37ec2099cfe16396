// What counters mean, and what happens if they cannot be read; no GPU is needed.
#include "measure/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns requested counts for a device without counters.
class FakeReader final : public CounterReader {
 public:
  const CounterState& state() const override { return state_; }
  CounterValues count(Dtype, const Launch& before, const Launch& work) override {
    before();
    log_ += "[";
    work();
    log_ += "]";
    if (fails_) throw CounterError(CounterStatus::denied, 35, "not allowed");
    const double written = ++counts_ == 1 ? 10 : 30;
    return {{"dram__bytes_read.sum", 100}, {"dram__bytes_write.sum", written}};
  }
  std::vector<CounterValues> count_launches(Dtype, const Launch& before,
                                            const Launch& work) override {
    before();
    log_ += "<";
    work();
    log_ += ">";
    return std::vector<CounterValues>(launches_);
  }
  int passes(Dtype) override { return 1; }

  CounterState state_{.status = CounterStatus::ok};
  bool fails_ = false;
  size_t launches_ = 1;
  int counts_ = 0;
  std::string log_;
};

// Logs its evictions.
class CountersTest : public testing::Test {
 protected:
  CounterReport count(CacheState cache, CounterDetail detail = CounterDetail::everything) {
    return count_run(*device_, reader_, Dtype::bf16, cache, detail, [&] { reader_.log_ += "r"; });
  }

  std::unique_ptr<Device> device_ = make_host_device(1);
  FakeReader reader_;
};

TEST_F(CountersTest, AWarmRunComesRightAfterAnother) {
  const CounterReport report = count(CacheState::warm);
  EXPECT_EQ(reader_.log_, "r[r]r[r]r<r>");
  EXPECT_EQ(report.passes, 1);
  EXPECT_EQ(report.eviction_bytes, device_->eviction_bytes());
  EXPECT_TRUE(report.launches.empty()) << "one launch is the run";
  EXPECT_EQ(measured_bytes(report), 110);
}

TEST_F(CountersTest, AColdRunAnswersForWhatItLeftInTheCache) {
  const CounterReport report = count(CacheState::cold);
  EXPECT_EQ(reader_.log_, "[r][r]<r>");
  EXPECT_EQ(measured_bytes(report), 130);
}

TEST_F(CountersTest, WithoutDetailsARunIsOneRange) {
  const CounterReport warm = count(CacheState::warm, CounterDetail::run);
  EXPECT_EQ(reader_.log_, "r[r]");
  EXPECT_EQ(measured_bytes(warm), 110);
  EXPECT_TRUE(warm.run_and_eviction.empty());
  EXPECT_EQ(warm.eviction_bytes, 0);
}

TEST_F(CountersTest, WithoutDetailsAColdRunStillAnswersForWhatItLeft) {
  EXPECT_EQ(measured_bytes(count(CacheState::cold, CounterDetail::run)), 130);
  EXPECT_EQ(reader_.log_, "[r][r]");
}

TEST_F(CountersTest, ARunOfSeveralLaunchesIsCountedApartToo) {
  reader_.launches_ = 3;
  EXPECT_EQ(count(CacheState::warm).launches.size(), 3u);
}

TEST_F(CountersTest, AFailureOnTheWayLeavesItsReasonAndNoFigures) {
  reader_.fails_ = true;
  const CounterReport report = count(CacheState::warm);
  EXPECT_EQ(report.state.status, CounterStatus::denied);
  EXPECT_EQ(report.state.code, 35);
  EXPECT_EQ(report.state.reason, "not allowed");
  EXPECT_TRUE(report.run.empty());
  EXPECT_FALSE(measured_bytes(report));
}

TEST_F(CountersTest, WhereNoneCanBeReadNothingRuns) {
  reader_.state_ = {.status = CounterStatus::no_driver, .reason = "there is none"};
  const CounterReport report = count(CacheState::warm);
  EXPECT_EQ(report.state.status, CounterStatus::no_driver);
  EXPECT_EQ(reader_.log_, "");
}

TEST_F(CountersTest, AHostHasNone) {
  const auto reader = make_counter_reader(*device_);
  EXPECT_EQ(reader->state().status, CounterStatus::off);
  EXPECT_THAT(reader->state().reason, HasSubstr("GPUs only"));
  EXPECT_THROW(reader->count(
                   Dtype::fp32, [] {}, [] {}),
               CounterError);
}

TEST(WantedMetrics, AreThoseOfTheChipAndTheDtype) {
  const std::vector<std::string> hopper{"dram__bytes",
                                        "dram__bytes_read",
                                        "dram__bytes_write",
                                        "lts__t_bytes",
                                        "sm__cycles_active",
                                        "sm__ops_path_tensor_src_bf16_dst_fp32",
                                        "sm__ops_path_tensor_src_fp16",
                                        "sm__ops_path_tensor_src_tf32_dst_fp32"};
  EXPECT_THAT(wanted_metrics(hopper, Dtype::bf16),
              ElementsAre("dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum",
                          "sm__ops_path_tensor_src_bf16_dst_fp32.sum"));
  EXPECT_THAT(wanted_metrics(hopper, Dtype::fp16),
              ElementsAre("dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum",
                          "sm__ops_path_tensor_src_fp16.sum"));
  EXPECT_THAT(wanted_metrics({"dram__bytes_op_read", "dram__bytes_op_write"}, Dtype::fp32),
              ElementsAre("dram__bytes_op_read.sum", "dram__bytes_op_write.sum"));
}

TEST(CounterValues, AreFoundByNameNotByPlace) {
  const CounterValues values{{"lts__t_bytes.sum", 3},
                             {"dram__bytes_op_write.sum", 2},
                             {"sm__ops_path_tensor_src_fp16.sum", 4},
                             {"something.else", 5}};
  EXPECT_EQ(total(values, Counted::l2), 3);
  EXPECT_EQ(total(values, Counted::dram_write), 2);
  EXPECT_EQ(total(values, Counted::tensor), 4);
  EXPECT_EQ(total(values, Counted::dram_read), std::nullopt);
}

}  // namespace
}  // namespace flashbench
