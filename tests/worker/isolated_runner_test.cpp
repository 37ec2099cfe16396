// The runner in a worker process, with workers that a script plays, and with the real one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "attention/error.h"
#include "report/json.h"
#include "tests/worker/scripted_worker.h"
#include "worker/runner.h"
#include "worker/wire.h"

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Act = Step::Act;
using Names = std::vector<std::string>;
using WireJson = wire::Json;

const Names kABC{"a", "b", "c"};
const Step kSegfault{.act = Act::die, .number = SIGSEGV};
constexpr const char* kSegfaultReason = "its worker was killed by signal 11 (Segmentation fault)";

Case small_case() {
  Case item;
  item.problem = {.q_heads = 1, .kv_heads = 1, .q_len = 8, .kv_len = 8, .head_dim = 16};
  return item;
}

Step segfault_of(int provider) {
  Step step = kSegfault;
  step.at_work = provider;
  return step;
}

Step opened(const char* kind = "cpu") {
  return {.text = WireJson{{"device", {{"kind", kind}}}, {"providers", kABC}}.dump()};
}

Step loaded() {
  return {.text = "{}"};
}

Step error(const std::exception& what) {
  return {.text = wire::error_answer(what).dump()};
}

Record record_of(const std::string& provider, Status status = Status::ok,
                 const std::string& reason = "") {
  Record record;
  record.item = small_case();
  record.provider = provider;
  record.status = status;
  record.reason = reason;
  if (status == Status::ok) {
    record.verdict = {Verdict::Status::passed, false, 1, {{.tensor = "o", .passed = true}}, ""};
  }
  return record;
}

std::string records_text(const std::vector<Record>& records) {
  WireJson list = WireJson::array();
  for (const Record& record : records) list.push_back(record_to_json(record, records));
  return WireJson{{"records", list}}.dump();
}

Step records(const std::vector<Record>& rows) {
  return {.text = records_text(rows)};
}

Step all_ok(const Names& providers) {
  std::vector<Record> rows;
  for (const std::string& name : providers) rows.push_back(record_of(name));
  return records(rows);
}

Step counted(const Names& providers) {
  WireJson list = WireJson::array();
  for (size_t i = 0; i < providers.size(); ++i) {
    CounterReport report;
    report.state.status = CounterStatus::ok;
    list.push_back(counter_report_to_json(report));
  }
  return {.text = WireJson{{"counts", list}}.dump()};
}

// What the workers were asked, e.g. {"1 open", "1 case a b", "2 open"}: numbers count the workers.
Names asked(const Script& script) {
  Names result;
  std::vector<pid_t> workers;
  for (const auto& [worker, request] : script.received()) {
    auto found = std::find(workers.begin(), workers.end(), worker);
    if (found == workers.end()) found = workers.insert(found, worker);
    const auto number = found - workers.begin() + 1;
    const WireJson json = WireJson::parse(request);
    std::string text = std::to_string(number) + " " + json.at("do").get<std::string>();
    if (json.at("do") == "case" || json.at("do") == "count") {
      for (const std::string name : json.at("providers")) text += " " + name;
    }
    result.push_back(text);
  }
  return result;
}

std::unique_ptr<Runner> start(const IsolationOptions& isolation = {},
                              const RunnerOptions& options = {}) {
  return make_isolated_runner(options, isolation);
}

std::vector<Record> run(Runner& runner, const Names& providers = kABC) {
  return runner.run(small_case(), providers, {});
}

// "a ok", "b crashed: the reason".
Names told(const std::vector<Record>& rows) {
  Names result;
  for (const Record& row : rows) {
    EXPECT_EQ(row.item.problem.q_len, 8);
    result.push_back(row.provider + " " + std::string(name(row.status)) +
                     (row.reason.empty() ? "" : ": " + row.reason));
  }
  return result;
}

// ---- start

TEST(IsolatedRunnerTest, OpensItsDeviceAndRunsCases) {
  const Script script({opened(), all_ok(kABC), all_ok({"b"})});
  const auto runner = start();
  EXPECT_EQ(runner->device().at("kind"), "cpu");
  EXPECT_EQ(runner->providers(), kABC);
  EXPECT_THAT(told(run(*runner)), ElementsAre("a ok", "b ok", "c ok"));
  EXPECT_THAT(told(run(*runner, {"b"})), ElementsAre("b ok"));
  EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a b c", "1 case b"));
}

TEST(IsolatedRunnerTest, AWorkerThatCrashesAtTheStartIsReplacedOnce) {
  const Script script({kSegfault, opened()});
  EXPECT_EQ(start()->providers(), kABC);
  EXPECT_THAT(asked(script), ElementsAre("1 open", "2 open"));
}

TEST(IsolatedRunnerTest, ADeviceWithWhichTwoWorkersCrashCannotBeUsed) {
  const Script script({kSegfault, kSegfault});
  EXPECT_THAT([] { start(); }, ThrowsMessage<NoDevice>(std::string("the device cannot be used: ") +
                                                       kSegfaultReason));
  EXPECT_EQ(asked(script).size(), 2u);
}

TEST(IsolatedRunnerTest, AWorkersErrorAtTheStartIsThrownAsWhatItWas) {
  {
    const Script script({error(BadInput("no such provider"))});
    EXPECT_THAT([] { start(); }, ThrowsMessage<BadInput>("no such provider"));
    EXPECT_EQ(asked(script).size(), 1u);
  }
  const Script script({error(NoDevice("no such device"))});
  EXPECT_THAT([] { start(); }, ThrowsMessage<NoDevice>("no such device"));
}

// ---- cases

TEST(IsolatedRunnerTest, ACrashCostsTheProviderAtWorkItsRow) {
  const Script script({opened(), segfault_of(1), opened(), all_ok({"a", "c"})});
  const auto runner = start();
  EXPECT_THAT(told(run(*runner)),
              ElementsAre("a ok", std::string("b crashed: ") + kSegfaultReason, "c ok"));
  EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a b c", "2 open", "2 case a c"));
}

TEST(IsolatedRunnerTest, EveryProviderMayCrash) {
  const Script script(
      {opened(), segfault_of(2), opened(), segfault_of(0), opened(), segfault_of(0), opened()});
  const auto runner = start();
  for (const Record& row : run(*runner)) EXPECT_EQ(row.status, Status::crashed);
  EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a b c", "2 open", "2 case a b", "3 open",
                                         "3 case b", "4 open"));
}

TEST(IsolatedRunnerTest, AHangIsATimeOutOfTheProviderAtWork) {
  Step hang = opened();
  hang.act = Act::hang;
  hang.at_work = 0;
  const Script script({hang, opened()});
  const auto runner = start({.case_seconds = 0.1});
  EXPECT_THAT(told(run(*runner, {"a"})),
              ElementsAre("a timeout: it did not end within 0.1 s; its worker was killed"));
  EXPECT_THAT(asked(script), ElementsAre("1 open", "2 open"));
}

TEST(IsolatedRunnerTest, GarbageIsACrashOfTheProviderAtWork) {
  const Script script({opened(),
                       {.act = Act::send_bytes, .text = std::string(64, '!'), .at_work = 0},
                       opened(),
                       all_ok({"b", "c"})});
  EXPECT_THAT(
      told(run(*start())),
      ElementsAre("a crashed: the bytes that arrived do not start a message", "b ok", "c ok"));
}

TEST(IsolatedRunnerTest, RowsThatWereNotAskedForAreGarbage) {
  Record elsewhere = record_of("c");
  elsewhere.item.problem.q_len = 9;
  const std::vector<std::vector<Record>> wrong{
      {record_of("a"), record_of("b")},
      {record_of("a"), record_of("b"), record_of("b")},
      {record_of("a"), record_of("b"), record_of("c"), record_of("c")},
      {record_of("a"), record_of("b"), elsewhere}};
  for (const std::vector<Record>& rows : wrong) {
    Step garbage = records(rows);
    garbage.at_work = 1;
    const Script script({opened(), garbage, opened(), all_ok({"a", "c"})});
    const auto runner = start();
    EXPECT_THAT(told(run(*runner)),
                ElementsAre("a ok",
                            testing::StartsWith("b crashed: the answer of its worker is not what "
                                                "it was asked for: expected "),
                            "c ok"));
    EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a b c", "2 open", "2 case a c"));
  }
}

TEST(IsolatedRunnerTest, ARowThatCannotBeReadIsGarbage) {
  const Script script({opened(),
                       {.text = R"({"records": [{"case": 5}]})", .at_work = 1},
                       opened(),
                       all_ok({"a", "c"})});
  const auto runner = start();
  EXPECT_THAT(told(run(*runner)), ElementsAre("a ok", HasSubstr("b crashed: "), "c ok"));
}

TEST(IsolatedRunnerTest, ACrashWhileNoProviderIsAtWorkIsTriedAgain) {
  const Script script({opened(), kSegfault, opened(), all_ok(kABC)});
  EXPECT_THAT(told(run(*start())), ElementsAre("a ok", "b ok", "c ok"));
  EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a b c", "2 open", "2 case a b c"));
}

TEST(IsolatedRunnerTest, TwoCrashesWhileNoProviderIsAtWorkEndTheCase) {
  const Script script({opened(), kSegfault, opened(), kSegfault, opened(), all_ok({"a"})});
  const auto runner = start();
  const auto rows = run(*runner);
  ASSERT_EQ(rows.size(), 3u);
  for (const Record& row : rows) {
    EXPECT_EQ(row.status, Status::crashed);
    EXPECT_EQ(row.reason, kSegfaultReason);
  }
  EXPECT_THAT(told(run(*runner, {"a"})), ElementsAre("a ok"));  // the next case has a worker
}

TEST(IsolatedRunnerTest, ADeviceThatIsLostEndsTheRun) {
  const Script script({opened(), segfault_of(0), error(NoDevice("it has gone"))});
  const auto runner = start();
  EXPECT_THAT([&] { run(*runner); }, ThrowsMessage<NoDevice>("it has gone"));
}

TEST(IsolatedRunnerTest, ErrorsOfACaseAreThrownAndCostNoWorker) {
  const Script script({opened(), error(FileError("q.npy: cannot read")), all_ok({"a"})});
  const auto runner = start();
  EXPECT_THAT([&] { run(*runner); }, ThrowsMessage<FileError>("q.npy: cannot read"));
  EXPECT_THAT(told(run(*runner, {"a"})), ElementsAre("a ok"));
  EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a b c", "1 case a"));
}

TEST(IsolatedRunnerTest, AfterAProvidersErrorTheNextCaseHasANewWorker) {
  for (const Status status : {Status::error, Status::out_of_memory}) {
    const Script script({opened(), records({record_of("a", status, "it says so")}), opened()});
    const auto runner = start();
    EXPECT_THAT(told(run(*runner, {"a"})),
                ElementsAre("a " + std::string(name(status)) + ": it says so"));
    EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a", "2 open"));
  }
}

TEST(IsolatedRunnerTest, NothingElseIsTimedBesideWhatAProviderLeftRunning) {
  Step left = records({record_of("a"), record_of("b", Status::failed, "its thread went on"),
                       record_of("c", Status::skipped, "not run")});
  left.left_running = 1;
  const Script script({opened(), left, opened(), all_ok({"a", "c"})});
  EXPECT_THAT(told(run(*start())), ElementsAre("a ok", "b failed: its thread went on", "c ok"));
  EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a b c", "2 open", "2 case a c"));
}

// The worker has as long again to answer.
TEST(IsolatedRunnerTest, WhatTheDeadlineCutShortSaysSo) {
  Record timed = record_of("a");
  timed.measurement = Measurement{{0.5}, 0, CacheState::warm, "interrupted"};
  const Script script(
      {opened(),
       {.act = Act::answer_when_asked,
        .text = records_text({timed, record_of("b", Status::skipped, "interrupted")})},
       opened()});
  const auto runner = start({.case_seconds = 5});
  const auto rows = run(*runner, {"a", "b"});
  EXPECT_THAT(told(rows), ElementsAre("a ok", "b timeout: the case was not done within 5 s"));
  ASSERT_TRUE(rows[0].measurement);
  EXPECT_EQ(rows[0].measurement->stop_reason, "deadline");
  EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a b", "2 open"));
}

TEST(IsolatedRunnerTest, AnInterruptSkipsTheCaseAndStartsNoWorker) {
  const Script script({opened(), segfault_of(0)});
  bool interrupted = false;
  const auto runner = start({.interrupted = [&] { return interrupted; }});
  interrupted = true;
  EXPECT_THAT(told(run(*runner, {"a", "b"})),
              ElementsAre("a skipped: interrupted", "b skipped: interrupted"));
  EXPECT_THAT(asked(script), ElementsAre("1 open", "1 case a b"));
}

// ---- plugins

const RunnerOptions kTwoPlugins{
    "cpu", 1, {}, {{"plugin:p", "/p.so", "0"}, {"plugin:q", "/q.so", "0"}}};

TEST(IsolatedRunnerTest, APluginThatCannotBeSurvivedHasARowThatSaysSo) {
  const Script script({opened(), kSegfault, opened(), loaded(), all_ok({"a"}), opened(), loaded()});
  const auto runner = start({}, kTwoPlugins);
  const std::string reason = std::string("when it was loaded, ") + kSegfaultReason;
  EXPECT_THAT(told(run(*runner, {"plugin:p", "a"})),
              ElementsAre("plugin:p crashed: " + reason, "a ok"));
  EXPECT_THAT([&] { runner->describe("plugin:p"); }, ThrowsMessage<std::runtime_error>(reason));
  runner->renew();  // does not try it again
  EXPECT_THAT(asked(script),
              ElementsAre("1 open", "1 load", "2 open", "2 load", "2 case a", "3 open", "3 load"));
}

TEST(IsolatedRunnerTest, APluginThatIsNoneIsBadInput) {
  const Script script({opened(), error(BadInput("/p.so: not a plugin"))});
  EXPECT_THAT([] { start({}, kTwoPlugins); }, ThrowsMessage<BadInput>("/p.so: not a plugin"));
}

// ---- other requests

TEST(IsolatedRunnerTest, CeilingsAreMeasuredAgainByANewWorkerOnce) {
  const Ceiling gemm{"gemm_fp32", "FLOP/s", "a GEMM", 8, {{2.0}, 0, CacheState::warm, ""}};
  const Step measured{.text = WireJson{{"ceilings", {ceiling_to_json(gemm)}}}.dump()};
  {
    const Script script({opened(), kSegfault, opened(), measured});
    const auto ceilings = start()->ceilings({});
    ASSERT_EQ(ceilings.size(), 1u);
    EXPECT_EQ(ceilings[0].name, "gemm_fp32");
    EXPECT_EQ(ceilings[0].rate(), 4);
  }
  const Script script({opened(), kSegfault, opened(), kSegfault});
  const auto runner = start();
  EXPECT_THAT([&] { runner->ceilings({}); }, ThrowsMessage<NoDevice>(HasSubstr("signal 11")));
}

TEST(IsolatedRunnerTest, DescribesAProviderOrSaysHowItsWorkerEnded) {
  const Script script({opened(), {.text = R"({"text": "what a runs"})"}, kSegfault});
  const auto runner = start();
  EXPECT_EQ(runner->describe("a"), "what a runs");
  EXPECT_THAT([&] { runner->describe("b"); }, ThrowsMessage<std::runtime_error>(kSegfaultReason));
}

TEST(IsolatedRunnerTest, CountersAreReadInAWorkerOfTheirOwn) {
  CounterState state;
  state.status = CounterStatus::ok;
  state.chip = "GH100";
  const Script script({opened("cuda"),
                       opened("cuda"),
                       {.text = WireJson{{"counters", counter_state_to_json(state)}}.dump()},
                       counted(kABC),
                       all_ok({"a"})});
  const auto runner = start();
  EXPECT_EQ(runner->counters().chip, "GH100");
  const auto reports = runner->count(small_case(), kABC, {});
  ASSERT_EQ(reports.size(), 3u);
  for (const CounterReport& report : reports) EXPECT_EQ(report.state.status, CounterStatus::ok);
  run(*runner, {"a"});
  EXPECT_THAT(asked(script),
              ElementsAre("1 open", "2 open", "2 counters", "2 count a b c", "1 case a"));
}

TEST(IsolatedRunnerTest, OnlyTheProviderAtWorkLosesItsCounts) {
  const Script script({opened(), opened(), segfault_of(1), opened(), counted({"a", "c"})});
  const auto runner = start();
  const auto reports = runner->count(small_case(), kABC, {});
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].state.status, CounterStatus::ok);
  EXPECT_EQ(reports[1].state.status, CounterStatus::failed);
  EXPECT_EQ(reports[1].state.reason, kSegfaultReason);
  EXPECT_EQ(reports[2].state.status, CounterStatus::ok);
}

TEST(IsolatedRunnerTest, CountsOfOtherProvidersAreNotTaken) {
  for (const Names& others : {Names{"a", "b"}, Names{"a", "b", "c", "d"}}) {
    Step wrong = counted(others);
    wrong.at_work = 1;
    const Script script({opened(), opened(), wrong, opened(), counted({"a", "c"})});
    const auto runner = start();
    const auto reports = runner->count(small_case(), kABC, {});
    ASSERT_EQ(reports.size(), 3u);
    EXPECT_EQ(reports[0].state.status, CounterStatus::ok);
    EXPECT_EQ(reports[1].state.status, CounterStatus::failed);
    EXPECT_EQ(reports[1].state.reason,
              fmt::format("the answer of its worker is not what it was asked for: expected counts "
                          "of 3 providers, found {}",
                          others.size()));
    EXPECT_EQ(reports[2].state.status, CounterStatus::ok);
  }
}

TEST(IsolatedRunnerTest, ACrashWhileNoProviderIsAtWorkCostsAllCounts) {
  const Script script({opened(), opened(), kSegfault});
  const auto runner = start();
  const auto reports = runner->count(small_case(), kABC, {});
  ASSERT_EQ(reports.size(), 3u);
  for (const CounterReport& report : reports) EXPECT_EQ(report.state.status, CounterStatus::failed);
  EXPECT_THAT(asked(script), ElementsAre("1 open", "2 open", "2 count a b c"));
}

// ---- the real worker

TEST(IsolatedRunnerTest, TheRealWorkerVerifiesACase) {
  const auto runner = start({}, {"cpu", 1, {}, {}});
  EXPECT_EQ(runner->device().at("kind"), "cpu");
  CaseRunOptions options;
  options.time = false;
  const auto rows = runner->run(small_case(), {"naive", "tiled"}, options);
  EXPECT_THAT(told(rows), ElementsAre("naive ok", "tiled ok"));
  for (const Record& row : rows) EXPECT_TRUE(row.verdict.passed());
}

TEST(IsolatedRunnerTest, TheRealWorkerTellsWhatIsWrong) {
  EXPECT_THAT(([] {
                start({}, {"cpu", 1, {"nobody"}, {}});
              }),
              ThrowsMessage<BadInput>(HasSubstr("\"nobody\"")));
}

}  // namespace
}  // namespace flashbench
