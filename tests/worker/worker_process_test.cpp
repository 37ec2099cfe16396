#include "worker/worker_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/worker/scripted_worker.h"

namespace flashbench {
namespace {

using testing::HasSubstr;
using testing::Not;

using Act = Step::Act;
using Reply = std::variant<Answer, AbnormalEnd>;

constexpr double kPlenty = 300;  // seconds; no test waits for them
constexpr double kSoon = 0.1;    // for workers that already hang

Reply ask(WorkerProcess& worker, double seconds = kPlenty) {
  return worker.ask("a request", seconds, [] { return false; });
}

bool hangs(const Step& step) {
  return step.act >= Act::hang;
}

// How a worker ends that takes this step.
AbnormalEnd end_after(const Step& step) {
  const Script script({step});
  WorkerProcess worker;
  if (hangs(step)) ask(worker);
  const Reply reply = ask(worker, hangs(step) ? kSoon : kPlenty);
  EXPECT_TRUE(std::holds_alternative<AbnormalEnd>(reply));
  EXPECT_EQ(worker.at_work(), step.at_work);
  EXPECT_TRUE(has_ended(script.received().at(0).worker));
  const auto* end = std::get_if<AbnormalEnd>(&reply);
  return end == nullptr ? AbnormalEnd{} : *end;
}

TEST(WorkerProcessTest, OneWorkerAnswersEveryRequest) {
  const Script script({{.text = "first", .at_work = 2}, {.text = "second", .left_running = 1}});
  WorkerProcess worker;
  Reply reply = worker.ask("one", kPlenty, [] { return false; });
  EXPECT_EQ(std::get<Answer>(reply).text, "first");
  EXPECT_FALSE(std::get<Answer>(reply).after_deadline);
  EXPECT_EQ(worker.at_work(), 2);
  EXPECT_EQ(worker.left_running(), -1);
  reply = worker.ask("two", kPlenty, [] { return false; });
  EXPECT_EQ(std::get<Answer>(reply).text, "second");
  EXPECT_EQ(worker.at_work(), -1);
  EXPECT_EQ(worker.left_running(), 1);

  const auto received = script.received();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].request, "one");
  EXPECT_EQ(received[1].request, "two");
  EXPECT_EQ(received[0].worker, received[1].worker);
}

TEST(WorkerProcessTest, ASignalThatKillsItIsNamedWithItsLastWords) {
  const AbnormalEnd end = end_after({.act = Act::die,
                                     .number = SIGSEGV,
                                     .at_work = 1,
                                     .print = "first words\nlast \x1b[31mwords\n\n \n"});
  EXPECT_EQ(end.status, Status::crashed);
  EXPECT_EQ(end.reason,
            "its worker was killed by signal 11 (Segmentation fault); it last printed: last "
            "?[31mwords");
}

TEST(WorkerProcessTest, AnEndWithoutAnAnswerIsACrashWhateverItsCode) {
  for (const int code : {0, 3}) {
    const AbnormalEnd end = end_after({.act = Act::exit, .number = code});
    EXPECT_EQ(end.status, Status::crashed);
    EXPECT_EQ(end.reason,
              "its worker ended without an answer, with exit code " + std::to_string(code));
  }
  EXPECT_EQ(end_after({.act = Act::send_half}).reason,
            "its worker ended without an answer, with exit code 0");
}

TEST(WorkerProcessTest, AWorkerMayCrashAfterItAnswered) {
  const Script script({{.text = "answer"}, {.act = Act::exit, .number = 5}});
  WorkerProcess worker;
  ask(worker);
  const Reply reply = ask(worker);
  EXPECT_EQ(std::get<AbnormalEnd>(reply).status, Status::crashed);
  EXPECT_THAT(std::get<AbnormalEnd>(reply).reason, HasSubstr("exit code 5"));
}

TEST(WorkerProcessTest, AWorkerThatSendsGarbageIsKilled) {
  const AbnormalEnd end =
      end_after({.act = Act::send_bytes, .text = "a plugin wrote to the wrong descriptor"});
  EXPECT_EQ(end.status, Status::crashed);
  EXPECT_EQ(end.reason, "the bytes that arrived do not start a message");
}

TEST(WorkerProcessTest, AnAnswerToAnotherRequestIsGarbage) {
  const AbnormalEnd end = end_after({.act = Act::answer_another});
  EXPECT_EQ(end.status, Status::crashed);
  EXPECT_EQ(end.reason,
            "expected the answer to request 1, found one to request 0: another process answers for "
            "its worker");
}

TEST(WorkerProcessTest, ASecondAnswerIsNotTakenForTheNext) {
  const Script script({{.act = Act::answer_twice, .text = "twice"}, {.text = "late"}});
  WorkerProcess worker;
  EXPECT_EQ(std::get<Answer>(ask(worker)).text, "twice");
  const Reply reply = ask(worker);
  EXPECT_THAT(std::get<AbnormalEnd>(reply).reason, HasSubstr("found one to request 1"));
}

TEST(WorkerProcessTest, AWorkerThatClosesTheConnectionIsKilled) {
  const AbnormalEnd end = end_after({.act = Act::close_socket, .print = "done"});
  EXPECT_EQ(end.status, Status::crashed);
  EXPECT_EQ(end.reason, "its worker closed the connection; it last printed: done");
}

TEST(WorkerProcessTest, AWorkerThatDoesNotEndInTimeIsKilled) {
  for (const Act act : {Act::hang, Act::hang_in_half}) {
    const AbnormalEnd end = end_after({.act = act, .at_work = 3, .print = "waiting"});
    EXPECT_EQ(end.status, Status::timeout);
    EXPECT_EQ(end.reason,
              "it did not end within 0.1 s; its worker was killed; it last printed: waiting");
  }
}

TEST(WorkerProcessTest, ATimeOutNamesTheRankThatDidNotFinish) {
  const AbnormalEnd end = end_after({.act = Act::hang_in_a_step, .number = 2});
  EXPECT_THAT(end.reason,
              HasSubstr("rank 2 did not finish step 3 of 4 (pull of keys 4096 to 8191)"));
  EXPECT_THAT(end.reason, HasSubstr("; it did not end within 0.1 s; its worker was killed"));
}

TEST(WorkerProcessTest, ChildrenOfAKilledWorkerAreKilled) {
  const Script script({{.act = Act::hang_with_child}});
  WorkerProcess worker;
  ask(worker);
  const Reply reply = ask(worker, kSoon);
  EXPECT_EQ(std::get<AbnormalEnd>(reply).status, Status::timeout);
  ASSERT_GT(script.child(), 0);
  EXPECT_TRUE(has_ended(script.child()));
}

// A kill of the worker's process group does not reach it.
TEST(WorkerProcessTest, SoAreThoseThatLeftItsGroup) {
  const Script script({{.act = Act::hang_with_daemon}});
  WorkerProcess worker;
  ask(worker);
  EXPECT_EQ(std::get<AbnormalEnd>(ask(worker, kSoon)).status, Status::timeout);
  ASSERT_GT(script.child(), 0);
  EXPECT_TRUE(has_ended(script.child()));
}

TEST(WorkerProcessTest, ChildrenOfAWorkerThatDiedAreKilled) {
  const Script script({{.act = Act::die_with_daemon, .number = SIGSEGV}});
  WorkerProcess worker;
  EXPECT_THAT(std::get<AbnormalEnd>(ask(worker)).reason, HasSubstr("signal 11"));
  ASSERT_GT(script.child(), 0);
  EXPECT_TRUE(has_ended(script.child()));
}

TEST(WorkerProcessTest, ChildrenThatNoWorkerStartedAreLeftAlone) {
  const pid_t own = fork();
  if (own == 0) {
    while (true) pause();
  }
  {
    const Script script({{.act = Act::die_with_daemon, .number = SIGSEGV}});
    WorkerProcess worker;
    ask(worker);
  }
  EXPECT_EQ(waitpid(own, nullptr, WNOHANG), 0);
  kill(own, SIGKILL);
  waitpid(own, nullptr, 0);
}

TEST(WorkerProcessTest, ChildrenOfOtherWorkersAreLeftAlone) {
  const Script script({{.act = Act::hang_with_child}, {.act = Act::hang_with_child}});
  WorkerProcess first, second;
  ask(first);
  ask(second);
  EXPECT_EQ(std::get<AbnormalEnd>(ask(first, kSoon)).status, Status::timeout);
  ASSERT_GT(script.child(), 0);
  EXPECT_EQ(kill(script.child(), 0), 0);
}

TEST(WorkerProcessTest, AWorkerEndsWithItsObject) {
  const Script script({{.text = "answer"}});
  std::optional<WorkerProcess> worker(std::in_place);
  ask(*worker);
  worker.reset();
  EXPECT_TRUE(has_ended(script.received().at(0).worker));
}

// The worker has a grace period of as many seconds to answer.
TEST(WorkerProcessTest, AnAnswerAfterTheDeadlineIsMarked) {
  const Script script(
      {{.act = Act::answer_when_asked, .text = "late"}, {.act = Act::say_whether_asked}});
  WorkerProcess worker;
  Reply reply = ask(worker, 5);
  EXPECT_EQ(std::get<Answer>(reply).text, "late");
  EXPECT_TRUE(std::get<Answer>(reply).after_deadline);
  reply = ask(worker);
  EXPECT_EQ(std::get<Answer>(reply).text, "not asked");
  EXPECT_FALSE(std::get<Answer>(reply).after_deadline);
}

TEST(WorkerProcessTest, AnInterruptAsksTheWorkerToEndBeforeTheDeadline) {
  const Script script({{.act = Act::answer_when_asked, .text = "interrupted"},
                       {.act = Act::answer_when_asked, .text = "interrupted again"}});
  WorkerProcess worker;
  for (const std::string text : {"interrupted", "interrupted again"}) {
    const Reply reply = worker.ask("a request", kPlenty, [] { return true; });
    EXPECT_EQ(std::get<Answer>(reply).text, text);
    EXPECT_FALSE(std::get<Answer>(reply).after_deadline);
  }
}

// More than a pipe holds, which would stop a worker that nobody reads from.
TEST(WorkerProcessTest, AFloodOfOutputNeitherStopsTheWorkerNorFillsAReason) {
  const std::string flood(1 << 20, 'x');
  const Script script({{.text = "answer", .print = flood}});
  WorkerProcess worker;
  EXPECT_EQ(std::get<Answer>(ask(worker)).text, "answer");

  const AbnormalEnd end = end_after({.act = Act::exit, .number = 1, .print = flood});
  EXPECT_THAT(end.reason, HasSubstr("it last printed: " + std::string(300, 'x') + "..."));
  EXPECT_THAT(end.reason, Not(HasSubstr(std::string(301, 'x'))));
}

}  // namespace
}  // namespace flashbench
