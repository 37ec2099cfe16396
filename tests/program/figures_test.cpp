#include "program/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace flashbench {
namespace {

using Json = ProgramProcess::Json;
using testing::ThrowsMessage;

const Json kAnswer = Json::parse(
    R"({"run": 0.5, "zero": 0, "bytes": 4096, "null": null, "huge": 1e300, "less": -1, "text": "x"})");

TEST(AnsweredFigures, AreWhatTheProgramSays) {
  const AnsweredFigures figures(kAnswer, "run", "/p");
  EXPECT_EQ(figures.seconds_of_run("run"), 0.5);
  EXPECT_EQ(figures.seconds("zero"), 0);
  EXPECT_EQ(figures.bytes("bytes"), 4096);
  for (const char* key : {"null", "none"}) {
    EXPECT_EQ(figures.seconds_of_run(key), std::nullopt);
    EXPECT_EQ(figures.seconds(key), std::nullopt);
    EXPECT_EQ(figures.bytes(key), std::nullopt);
  }
}

TEST(AnsweredFigures, ThatNothingCouldMeasureAreErrors) {
  const AnsweredFigures figures(kAnswer, "run", "/p");
  EXPECT_THAT([&] { figures.seconds_of_run("huge"); },
              ThrowsMessage<std::runtime_error>(
                  "/p gave a wrong answer to \"run\": expected \"huge\" from 1e-12 to 1e+09, found "
                  "1e+300"));
  EXPECT_THROW(figures.seconds_of_run("zero"), std::runtime_error);
  for (const char* key : {"less", "text", "huge"}) {
    EXPECT_THROW(figures.seconds_of_run(key), std::runtime_error) << key;
    EXPECT_THROW(figures.seconds(key), std::runtime_error) << key;
    EXPECT_THROW(figures.bytes(key), std::runtime_error) << key;
  }
}

TEST(AnsweredFigures, SayWhichEntryIsMissingOrOfAnotherType) {
  const AnsweredFigures figures(kAnswer, "run", "/p");
  EXPECT_EQ(figures.required<int64_t>("bytes"), 4096);
  EXPECT_EQ(figures.required<std::string>("text"), "x");
  EXPECT_THAT(
      [&] { figures.required<int64_t>("count"); },
      ThrowsMessage<std::runtime_error>("/p gave a wrong answer to \"run\": /count: missing"));
  EXPECT_THAT([&] { figures.required<int64_t>("text"); },
              ThrowsMessage<std::runtime_error>(
                  "/p gave a wrong answer to \"run\": /text: expected an integer, found \"x\""));
  EXPECT_THROW(figures.required<uint64_t>("less"), std::runtime_error);
  EXPECT_THROW(figures.required<std::string>("null"), std::runtime_error);
}

}  // namespace
}  // namespace flashbench
