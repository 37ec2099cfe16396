#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/error.h"
#include "tests/case/fake_provider.h"
#include "worker/runner.h"

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

class LocalRunnerTest : public testing::Test {
 protected:
  LocalRunnerTest() {
    item_.problem = {.q_heads = 1, .kv_heads = 1, .q_len = 8, .kv_len = 8, .head_dim = 16};
    options_.measure.warmup_seconds = 0;
    options_.measure.min_samples = options_.measure.max_samples = 2;
    options_.time = false;
    watch_.at_work = &at_work_;
  }

  // Of the providers first and second.
  std::unique_ptr<Runner> runner() {
    return make_local_runner(make_host_device(1), {&first_, &second_}, watch_);
  }

  // The providers at work in the runs of `first` and `second`, in order.
  std::vector<int> seen_at_work_;
  std::atomic<int> at_work_{-1};
  FakeProvider::Tamper look_ = [this](const Inputs&, const Outputs&, int) {
    seen_at_work_.push_back(at_work_);
  };
  FakeProvider first_{look_, "first"}, second_{look_, "second"};
  Watch watch_;
  CaseRunOptions options_;
  Case item_;
};

TEST_F(LocalRunnerTest, NamesItsProvidersAndItsDevice) {
  EXPECT_THAT(runner()->providers(), ElementsAre("first", "second"));
  EXPECT_EQ(runner()->device().at("kind"), "cpu");
  EXPECT_THAT(runner()->describe("second"), HasSubstr("second"));
}

TEST_F(LocalRunnerTest, RunsTheNamedProvidersInTheOrderOfTheNames) {
  const auto rows = runner()->run(item_, {"second", "first"}, options_);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].provider, "second");
  EXPECT_EQ(rows[1].provider, "first");
  EXPECT_THAT(runner()->run(item_, {"second"}, options_),
              ElementsAre(testing::Field(&Record::provider, "second")));
  EXPECT_THAT(
      [&] {
        runner()->run(item_, {"first", "third"}, options_);
      },
      ThrowsMessage<BadInput>("no provider \"third\" runs here"));
}

TEST_F(LocalRunnerTest, TellsWhichOfTheNamedProvidersIsAtWork) {
  runner()->run(item_, {"second"}, options_);
  EXPECT_THAT(seen_at_work_, testing::Each(0));
  EXPECT_FALSE(seen_at_work_.empty());
  EXPECT_EQ(at_work_, -1);
}

TEST_F(LocalRunnerTest, TimesTheGemmOnlyBesideTimedProviders) {
  const auto runner = this->runner();
  EXPECT_FALSE(runner->run(item_, {"first"}, options_).at(0).gemm);
  options_.time = true;
  const Record timed = runner->run(item_, {"first"}, options_).at(0);
  ASSERT_TRUE(timed.gemm) << timed.reason;
  EXPECT_EQ(timed.gemm->seconds.size(), 2u);
}

TEST_F(LocalRunnerTest, AnInterruptedCaseIsSkipped) {
  watch_.interrupted = [] { return true; };
  EXPECT_EQ(runner()->run(item_, {"first"}, options_).at(0).status, Status::skipped);
  EXPECT_TRUE(seen_at_work_.empty());
}

TEST_F(LocalRunnerTest, HasNoCountersOnACpu) {
  const CounterState state = runner()->counters();
  EXPECT_NE(state.status, CounterStatus::ok);
  EXPECT_NE(state.reason, "");
  const auto reports = runner()->count(item_, {"first", "second"}, options_);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].state.reason, state.reason);
}

TEST_F(LocalRunnerTest, WhatCannotBeMadeIsBadInput) {
  EXPECT_THAT(([&] {
                make_local_runner({"cpu", 1, {"nobody"}, {}}, watch_);
              }),
              ThrowsMessage<BadInput>(HasSubstr("\"nobody\"")));
  EXPECT_THAT(([&] {
                make_local_runner({"abacus", 1, {}, {}}, watch_);
              }),
              ThrowsMessage<BadInput>(HasSubstr("\"abacus\"")));
  EXPECT_THAT(([&] {
                make_local_runner({"cpu", 1, {}, {}, "/no/such/program"}, watch_);
              }),
              ThrowsMessage<BadInput>(HasSubstr("/no/such/program")));
}

}  // namespace
}  // namespace flashbench
