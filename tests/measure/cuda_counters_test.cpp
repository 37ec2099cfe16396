// Counters of work with known traffic and operations; skipped if no counters can be read.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "device/cuda.h"
#include "measure/ceilings.h"
#include "measure/counters.h"
#include "measure/cuda_rates.h"

namespace flashbench {
namespace {

constexpr double kTolerance = 0.02;

class CudaCountersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    device_ = make_cuda_device(0);
    reader_ = make_counter_reader(*device_);
    const CounterState& state = reader_->state();
    RecordProperty("counters", std::string(name(state.status)) + " " + state.reason);
    if (state.status != CounterStatus::ok) GTEST_SKIP() << name(state.status) << state.reason;
  }

  static void expect_near(std::optional<double> counted, double expected) {
    ASSERT_TRUE(counted);
    EXPECT_NEAR(*counted, expected, kTolerance * expected);
  }

  // A copy of 1 GiB: half of it read, half written.
  CounterReport count_copy(CacheState cache) {
    const size_t bytes = size_t{1} << 30;
    const Buffer from = device_->allocate(bytes, MemoryUse::workspace);
    const Buffer to = device_->allocate(bytes, MemoryUse::workspace);
    return count_run(*device_, *reader_, Dtype::bf16, cache, CounterDetail::everything, [&] {
      cuda_rates::copy(to.data(), from.data(), bytes,
                       static_cast<cudaStream_t>(device_->stream().cuda));
    });
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<CounterReader> reader_;
};

TEST_F(CudaCountersTest, ACopyReadsAndWritesItsBytes) {
  const double bytes = 1 << 30;
  const CounterReport cold = count_copy(CacheState::cold);
  ASSERT_EQ(cold.state.status, CounterStatus::ok) << cold.state.reason;
  EXPECT_EQ(cold.passes, 1);
  expect_near(total(cold.run, Counted::dram_read), bytes);
  // When the range ends, up to one L2 of it is still unwritten; after the eviction nothing is.
  EXPECT_LE(*total(cold.run, Counted::dram_write), bytes * (1 + kTolerance));
  EXPECT_GE(*total(cold.run, Counted::dram_write),
            bytes - static_cast<double>(device_->info().last_level_cache_bytes));
  expect_near(total(cold.run_and_eviction, Counted::dram_write), bytes);
  expect_near(static_cast<double>(*measured_bytes(cold)), 2 * bytes);
  EXPECT_GE(*total(cold.run, Counted::l2), 2 * bytes * (1 - kTolerance));
  EXPECT_EQ(total(cold.run, Counted::tensor), 0);

  const CounterReport warm = count_copy(CacheState::warm);
  expect_near(static_cast<double>(*measured_bytes(warm)), 2 * bytes);
}

TEST_F(CudaCountersTest, AProductsTensorOperationsAreTwoForEachMultiplyAdd) {
  for (Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
    const auto gemm = make_gemm_ceiling(*device_, dtype);
    const CounterReport report = count_run(*device_, *reader_, dtype, CacheState::warm,
                                           CounterDetail::run, [&] { gemm->run(); });
    ASSERT_EQ(report.state.status, CounterStatus::ok) << report.state.reason;
    expect_near(total(report.run, Counted::tensor), gemm->flops());
  }
}

TEST_F(CudaCountersTest, AnFp32ProductKeepsOffTensorCores) {
  const auto gemm = make_gemm_ceiling(*device_, Dtype::fp32);
  const CounterReport report = count_run(*device_, *reader_, Dtype::fp32, CacheState::warm,
                                         CounterDetail::run, [&] { gemm->run(); });
  EXPECT_EQ(total(report.run, Counted::tensor), 0);
}

TEST_F(CudaCountersTest, LaunchesAddUpToTheRun) {
  const size_t bytes = size_t{256} << 20;
  const Buffer a = device_->allocate(bytes, MemoryUse::workspace);
  const Buffer b = device_->allocate(bytes, MemoryUse::workspace);
  const auto stream = static_cast<cudaStream_t>(device_->stream().cuda);
  const CounterReport report =
      count_run(*device_, *reader_, Dtype::bf16, CacheState::cold, CounterDetail::everything, [&] {
        cuda_rates::copy(b.data(), a.data(), bytes, stream);
        cuda_rates::copy(a.data(), b.data(), bytes / 2, stream);
      });
  ASSERT_EQ(report.state.status, CounterStatus::ok) << report.state.reason;
  ASSERT_EQ(report.launches.size(), 2u);
  const double sum =
      *total(report.launches[0], Counted::l2) + *total(report.launches[1], Counted::l2);
  expect_near(sum, *total(report.run, Counted::l2));
}

}  // namespace
}  // namespace flashbench
