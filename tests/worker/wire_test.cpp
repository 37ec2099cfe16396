#include "worker/wire.h"

#include <gtest/gtest.h>

#include "attention/error.h"

namespace flashbench {
namespace {

TEST(Wire, OptionsComeBackAsTheyWere) {
  CaseRunOptions options;
  options.measure = {CacheState::cold, 3, 0.25, 11, 17, 0.125, 2.5, 4};
  options.measure.counters = CounterMode::on;
  options.measure.energy_seconds = 1.5;
  options.verify.fp64_flops = 12345;
  options.time = false;
  options.repeat = 7;
  options.dump = "some/folder";
  const CaseRunOptions again =
      wire::case_run_options(wire::Json::parse(wire::to_json(options).dump()));
  EXPECT_EQ(wire::to_json(again), wire::to_json(options));
  EXPECT_EQ(again.measure.cache, CacheState::cold);
  EXPECT_EQ(again.measure.repetitions, 4);
  EXPECT_EQ(again.measure.counters, CounterMode::on);
  EXPECT_EQ(again.measure.energy_seconds, 1.5);
  EXPECT_EQ(again.verify.fp64_flops, 12345);
  EXPECT_FALSE(again.time);
  EXPECT_EQ(again.repeat, 7);
  EXPECT_EQ(again.dump, options.dump);

  const PluginFile plugin{"plugin:p", "/path/p.so", "0123456789abcdef"};
  const RunnerOptions runner =
      wire::runner_options(wire::to_json(RunnerOptions{"cpu", 3, {"a"}, {plugin}, "p"}));
  EXPECT_EQ(runner.device, "cpu");
  EXPECT_EQ(runner.threads, 3);
  EXPECT_EQ(runner.providers, std::vector<std::string>{"a"});
  EXPECT_EQ(runner.program, "p");
  EXPECT_EQ(runner.plugins, std::vector<PluginFile>{plugin});
}

template <typename Error>
void expect_same_error() {
  try {
    wire::throw_if_error(wire::error_answer(Error("what happened")));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "what happened");
  }
}

TEST(Wire, ErrorsAreThrownAgainAsWhatTheyWere) {
  expect_same_error<NoDevice>();
  expect_same_error<BadInput>();
  expect_same_error<FileError>();
  expect_same_error<std::runtime_error>();
  wire::throw_if_error({{"records", wire::Json::array()}});
}

}  // namespace
}  // namespace flashbench
