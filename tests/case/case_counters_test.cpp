#include "case/case_counters.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/case/fake_provider.h"

namespace flashbench {
namespace {

// Counts a provider's runs instead of bytes.
class RunReader final : public CounterReader {
 public:
  const CounterState& state() const override { return state_; }
  CounterValues count(Dtype, const Launch& before, const Launch& work) override {
    before();
    work();
    return {{"dram__bytes_read.sum", 1}, {"dram__bytes_write.sum", 1}};
  }
  std::vector<CounterValues> count_launches(Dtype, const Launch&, const Launch&) override {
    return {};
  }
  int passes(Dtype) override { return 1; }

 private:
  CounterState state_{.status = CounterStatus::ok, .chip = "GF1"};
};

TEST(CaseCounters, EveryProviderHasAReportInBothPasses) {
  const auto device = make_host_device(1);
  RunReader reader;
  int runs = 0;
  const FakeProvider counted([&](const Inputs&, const Outputs&, int) { ++runs; }, "counted");
  const FakeProvider broken(
      [](const Inputs&, const Outputs&, int) { throw std::runtime_error("broken"); }, "broken");
  for (Pass pass : kPasses) {
    Case item;
    item.problem = {.pass = pass, .q_len = 8, .kv_len = 8, .head_dim = 8};
    runs = 0;
    CaseRunOptions options;
    const auto reports = count_case(item, {&broken, &counted}, *device, reader, options);
    ASSERT_EQ(reports.size(), 2u);
    EXPECT_EQ(reports[0].state.status, CounterStatus::failed);
    EXPECT_EQ(reports[0].state.reason, "broken");
    EXPECT_FALSE(measured_bytes(reports[0]));
    EXPECT_EQ(reports[1].state.status, CounterStatus::ok);
    EXPECT_EQ(measured_bytes(reports[1]), 2);
    EXPECT_EQ(runs, 3) << "one that loads, one before the range and one in it";

    options.measure.counters = CounterMode::on;
    runs = 0;
    count_case(item, {&counted}, *device, reader, options);
    EXPECT_EQ(runs, 5) << "and another range of two";
  }
  EXPECT_EQ(device->used().total(), 0);
}

TEST(CaseCounters, AnInterruptedCaseIsNotCounted) {
  const auto device = make_host_device(1);
  RunReader reader;
  Case item;
  item.problem = {.q_len = 8, .kv_len = 8, .head_dim = 8};
  const Provider& provider = FakeProvider::real(DeviceKind::cpu);
  const auto reports =
      count_case(item, {&provider}, *device, reader, {}, {.interrupted = [] { return true; }});
  EXPECT_EQ(reports.at(0).state.reason, "interrupted");
}

}  // namespace
}  // namespace flashbench
