#include "report/progress.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace flashbench {
namespace {

std::string printed(Progress::Mode mode) {
  std::FILE* stream = std::tmpfile();
  {
    Progress progress(stream, mode, 2, 10);
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
            "\r\033[K[1/2] first\r\033[Ka note\n\r\033[K[2/2] second  ETA 0:00\r\033[K");
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
