#include "host/resource_limits.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

namespace flashbench {
namespace {

rlimit files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

TEST(ResourceLimits, ThatWereLoweredAreRaisedAgain) {
  remember_limits();
  const rlimit before = files();
  const rlimit fewer{before.rlim_cur - 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &fewer), 0);
  remember_limits();  // keeps those of before
  EXPECT_TRUE(restore_limits());
  EXPECT_EQ(files().rlim_cur, before.rlim_cur);
}

TEST(ResourceLimits, ThatWereRaisedStay) {
  const rlimit before = files();
  const auto raise_one = [&] {
    const rlimit fewer{before.rlim_cur - 1, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &fewer);
    remember_limits();
    setrlimit(RLIMIT_NOFILE, &before);
    std::_Exit(restore_limits() && files().rlim_cur == before.rlim_cur ? 0 : 1);
  };
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // where nothing is remembered yet
  EXPECT_EXIT(raise_one(), testing::ExitedWithCode(0), "");
}

// Only privileged processes may raise a hard limit.
TEST(ResourceLimits, ThatMayNotBeRaisedAgainAreTold) {
  const auto lower_for_good = [] {
    remember_limits();
    if (geteuid() == 0 && setuid(65534) != 0) std::_Exit(2);
    const rlimit fewer{files().rlim_cur - 1, files().rlim_cur - 1};
    setrlimit(RLIMIT_NOFILE, &fewer);
    std::_Exit(restore_limits() ? 1 : 0);
  };
  EXPECT_EXIT(lower_for_good(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace flashbench
