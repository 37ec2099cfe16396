#include "host/process_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace flashbench {
namespace {

using testing::Contains;
using testing::Not;

[[noreturn]] void wait_to_be_killed() {
  while (true) pause();
}

// Starts a process with a child in another session, whose number it writes to the pipe.
pid_t start_family(int pipe) {
  const pid_t parent = fork();
  if (parent != 0) return parent;
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    const pid_t own = getpid();
    if (write(pipe, &own, sizeof(own)) != sizeof(own)) _exit(1);
  }
  wait_to_be_killed();
}

TEST(ProcessTree, KillsDescendantsInOtherSessions) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = start_family(ends[1]);
  pid_t child = 0;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  EXPECT_THAT(children_of(getpid()), Contains(parent));
  EXPECT_THAT(children_of(getpid()), Not(Contains(child)));
  EXPECT_THAT(children_of(parent), Contains(child));

  kill(parent, SIGSTOP);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that the child's end can be waited for here
  kill_descendants_of(parent);
  EXPECT_EQ(kill(parent, 0), 0);
  kill(parent, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(ProcessTree, AProcessThatHasEndedHasNoChildren) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  EXPECT_TRUE(children_of(gone).empty());
  kill_descendants_of(gone);
}

}  // namespace
}  // namespace flashbench
