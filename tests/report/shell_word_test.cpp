#include "report/shell_word.h"

#include <gtest/gtest.h>

namespace flashbench {
namespace {

TEST(ShellWord, WhatNeedsNoQuotesHasNone) {
  for (const char* plain : {"tiled:sm80", "q/k.npy", "mine=/path/libx.so", "7:3,1_0,4", "-0.5"}) {
    EXPECT_EQ(shell_word(plain), plain);
  }
}

TEST(ShellWord, EverythingElseIsInSingleQuotes) {
  EXPECT_EQ(shell_word("my q.npy"), "'my q.npy'");
  EXPECT_EQ(shell_word("a;rm -rf ~"), "'a;rm -rf ~'");
  EXPECT_EQ(shell_word("$(x)`y`\"z\\"), "'$(x)`y`\"z\\'");
  EXPECT_EQ(shell_word("d i'r"), "'d i'\\''r'");
  EXPECT_EQ(shell_word("'"), "''\\'''");
  EXPECT_EQ(shell_word("~/q.npy"), "'~/q.npy'");
  EXPECT_EQ(shell_word("gr\xc3\xbc\xc3\x9f"
                       "e.npy"),
            "'gr\xc3\xbc\xc3\x9f"
            "e.npy'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace flashbench
