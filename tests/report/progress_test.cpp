#include "report/progress.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace flashbench {
namespace {

std::string printed(Progress::Mode mode) {
  std::FILE* stream = std::tmpfile();
  {
    Progress progress(stream, mode);
    progress.plan(2, 10);
    progress.begin_step("first");
    progress.end_step(5);
    progress.note("a note");
    progress.begin_step("second");
    progress.end_step(5);
  }
  std::string text(static_cast<size_t>(std::ftell(stream)), '\0');
  std::rewind(stream);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), stream), text.size());
  std::fclose(stream);
  return text;
}

TEST(Progress, LinesAwayFromATerminal) {
  EXPECT_EQ(printed(Progress::Mode::lines), "[1/2] first\na note\n[2/2] second  ETA 0:00\n");
}

TEST(Progress, OneLineThatRewritesItselfOnATerminal) {
  EXPECT_EQ(printed(Progress::Mode::live),
            "[1/2] first\r\033[Ka note\n[2/2] second  ETA 0:00\r\033[K");
}

TEST(Progress, AFinishedLineIsLeftEmptyForWhatFollows) {
  std::FILE* stream = std::tmpfile();
  Progress progress(stream, Progress::Mode::live);
  progress.plan(1, 1);
  progress.begin_step("only");
  progress.finish();
  const long printed = std::ftell(stream);
  progress.finish();  // there is nothing left to clear
  EXPECT_EQ(std::ftell(stream), printed);
  EXPECT_EQ(printed, static_cast<long>(std::string("[1/1] only\r\033[K").size()));
  std::fclose(stream);
}

TEST(Progress, GoesOnWhereNothingCanBePrinted) {
  std::FILE* full = std::fopen("/dev/full", "w");
  {
    Progress progress(full, Progress::Mode::lines);
    progress.plan(1, 1);
    EXPECT_NO_THROW(progress.begin_step("unheard"));
  }
  std::fclose(full);
}

TEST(Progress, QuietSaysNothing) {
  EXPECT_EQ(printed(Progress::Mode::quiet), "");
}

TEST(Progress, Durations) {
  EXPECT_EQ(format_duration(0.4), "0:00");
  EXPECT_EQ(format_duration(80), "1:20");
  EXPECT_EQ(format_duration(7500), "2:05:00");
}

}  // namespace
}  // namespace flashbench
