#include "host/fork_watch.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace flashbench {
namespace {

void expect_told(pid_t (*make_child)()) {
  watch_forks();
  EXPECT_FALSE(is_forked_child());
  const int owner = 0, another = 0;
  EXPECT_EQ(take_returned_child(&owner), nullptr);
  const pid_t child = make_child();
  if (child == 0) {
    if (!is_forked_child()) abort();
    end_forked_child(&owner, "run");
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_FALSE(is_forked_child());
  EXPECT_EQ(take_returned_child(&another), nullptr);
  EXPECT_STREQ(take_returned_child(&owner), "run");
  EXPECT_EQ(take_returned_child(&owner), nullptr);
}

TEST(ForkWatch, TellsWhereAChildCameBack) {
  expect_told(fork);
}

TEST(ForkWatch, TellsItOfAForkBehindTheLibrarysBackToo) {
  expect_told([] { return static_cast<pid_t>(syscall(SYS_fork)); });
}

}  // namespace
}  // namespace flashbench
