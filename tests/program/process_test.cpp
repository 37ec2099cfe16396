#include "program/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "attention/error.h"
#include "attention/exit_codes.h"
#include "device/device.h"
#include "providers/provider.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

using Json = ProgramProcess::Json;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A shell script that runs as the program.
class Script {
 public:
  explicit Script(const std::string& body) {
    std::ofstream(path()) << "#!/bin/sh\n" << body;
    std::filesystem::permissions(path(), std::filesystem::perms::owner_all);
  }

  std::string path() const { return folder_ / "program"; }

 private:
  TemporaryFolder folder_;
};

TEST(ProgramProcess, IsStartedToServeAndAnswersEachRequest) {
  const Script script(
      R"(while read request; do echo "{\"argument\": \"$1\", \"was\": $request}"; done)");
  ProgramProcess program(script.path());
  for (int i = 0; i < 3; ++i) {
    const Json answer = program.ask({{"do", "count"}, {"number", i}});
    EXPECT_EQ(answer.at("argument"), "serve");
    EXPECT_EQ(answer.at("was"), (Json{{"do", "count"}, {"number", i}}));
  }
}

TEST(ProgramProcess, TakesAnswersLongerThanAPacket) {
  const Script script(
      R"(read request; printf '{"text": "'; head -c 3000000 /dev/zero | tr '\0' x; echo '"}')");
  ProgramProcess program(script.path());
  EXPECT_EQ(program.ask({{"do", "talk"}}).at("text").get<std::string>().size(), 3000000u);
}

template <typename Error>
void expect_thrown_as(const std::string& kind) {
  const Script script(R"(read r; echo '{"error": {"kind": ")" + kind +
                      R"(", "message": "what happened"}}'; read r)");
  ProgramProcess program(script.path());
  EXPECT_THAT([&] { program.ask({{"do", "fail"}}); }, ThrowsMessage<Error>("what happened"));
}

TEST(ProgramProcess, ErrorsAreThrownAsWhatTheyAre) {
  expect_thrown_as<OutOfMemory>("out_of_memory");
  expect_thrown_as<Unsupported>("unsupported");
  expect_thrown_as<BadInput>("bad_input");
  expect_thrown_as<std::runtime_error>("other");
}

TEST(ProgramProcess, WhatIsNoJsonObjectIsAnError) {
  const Script script("read r; echo hello; read r; echo 3; read r");
  ProgramProcess program(script.path());
  EXPECT_THAT(
      [&] {
        program.ask({{"do", "talk"}});
      },
      ThrowsMessage<std::runtime_error>(AllOf(HasSubstr("not a JSON"), HasSubstr("hello"))));
  EXPECT_THROW(program.ask({{"do", "talk"}}), std::runtime_error);
}

TEST(ProgramProcess, AProgramThatCannotBeStartedIsBadInput) {
  EXPECT_THAT([] { ProgramProcess("/no/such/program"); },
              ThrowsMessage<BadInput>(
                  AllOf(HasSubstr("/no/such/program"), HasSubstr("No such file or directory"))));
}

TEST(ProgramProcess, AProgramThatEndsBeforeItsFirstAnswerIsBadInput) {
  const Script script("exit 3");
  ProgramProcess program(script.path());
  EXPECT_THAT(
      [&] {
        program.ask({{"do", "open"}});
      },
      ThrowsMessage<BadInput>(HasSubstr("ended with exit code 3")));
}

// Uses the style "fast", which forks: a new process would create another script and leave it
// behind.
TEST(ProgramProcessDeathTest, AProgramThatEndsLaterTakesThisProcessWithIt) {
  GTEST_FLAG_SET(death_test_style, "fast");
  const Script script("read r; echo '{}'; read r; kill -9 $$");
  EXPECT_EXIT(
      {
        ProgramProcess program(script.path());
        program.ask({{"do", "open"}});
        program.ask({{"do", "run"}});
      },
      testing::ExitedWithCode(exit_codes::kProgramFailed), "was killed by signal 9");
}

TEST(ProgramProcessDeathTest, AProgramThatLosesTheDeviceTakesThisProcessWithIt) {
  GTEST_FLAG_SET(death_test_style, "fast");
  const Script script(
      R"(read r; echo '{"error": {"kind": "device_lost", "message": "it is gone"}}'; read r)");
  EXPECT_EXIT(ProgramProcess(script.path()).ask({{"do", "run"}}),
              testing::ExitedWithCode(exit_codes::kProgramFailed), "it is gone");
}

TEST(ProgramProcessDeathTest, AProgramThatCannotTakeBackWhatItGaveTakesThisProcessWithIt) {
  GTEST_FLAG_SET(death_test_style, "fast");
  const Script script(
      R"(read r; echo '{}'; read r; echo '{"error": {"kind": "other", "message": "busy"}}'; read r)");
  EXPECT_EXIT(
      {
        ProgramProcess program(script.path());
        program.give_back({{"do", "free"}, {"address", 1}});
        program.give_back({{"do", "close"}, {"session", 7}});
      },
      testing::ExitedWithCode(exit_codes::kProgramFailed),
      R"(failed at \{"do":"close","session":7\}: busy)");
}

}  // namespace
}  // namespace flashbench
