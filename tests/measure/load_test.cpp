// Parsing the system's texts about load.
#include "measure/load.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace flashbench {
namespace {

// user nice system idle iowait irq softirq steal guest guest_nice
constexpr std::string_view kStat =
    "cpu  999 999 999 999 999 999 999 999 0 0\n"
    "cpu0 100 200 300 1000 50 10 20 7 0 0\n"
    "cpu1 1 2 3 4 5 6 7 8 0 0\n"
    "cpu10 10000 0 0 0 0 0 0 900 0 0\n"
    "intr 12345 0 0\n";

TEST(Load, SumsTheCoresAskedFor) {
  const auto one = core_sums(kStat, {0});
  ASSERT_TRUE(one);
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(one->busy * ticks, 630);
  EXPECT_DOUBLE_EQ(one->idle * ticks, 1050);
  EXPECT_DOUBLE_EQ(one->stolen * ticks, 7);
  const auto two = core_sums(kStat, {1, 10});
  ASSERT_TRUE(two);
  EXPECT_DOUBLE_EQ(two->busy * ticks, 10019);
  EXPECT_DOUBLE_EQ(two->stolen * ticks, 908);
}

TEST(Load, ACoreThatIsNotThereIsNoFigure) {
  EXPECT_FALSE(core_sums(kStat, {0, 2}));
  EXPECT_FALSE(core_sums("", {0}));
  EXPECT_FALSE(core_sums("cpu0 1 2 3\n", {0}));  // an old kernel's, without steal
}

TEST(Load, PressureIsTheTotalOfSome) {
  EXPECT_DOUBLE_EQ(*stalled_seconds("some avg10=1.00 avg60=2.00 avg300=0.50 total=2500000\n"
                                    "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
                   2.5);
  EXPECT_FALSE(stalled_seconds(""));
  EXPECT_FALSE(stalled_seconds("full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"));
}

TEST(Load, SumsOfStretchesKeepAverages) {
  const Load sum = Load{1, 2, 0.5, 0, 0.25} + Load{3, 2, 3.5, 0.4, 0.5};
  EXPECT_DOUBLE_EQ(sum.seconds, 4);
  EXPECT_DOUBLE_EQ(sum.cores, 2);
  EXPECT_DOUBLE_EQ(sum.others_cores(), 1);
  EXPECT_DOUBLE_EQ(sum.stolen_cores(), 0.1);
  EXPECT_DOUBLE_EQ(*sum.stalled, 0.75);
  EXPECT_FALSE((Load{1, 2, 0, 0, 0.5} + Load{1, 2, 0, 0}).stalled);
}

TEST(Load, IsToldWhereThereIsSome) {
  EXPECT_EQ(told({10, 2, 0.9, 0}), "");
  EXPECT_EQ(told({10, 2, 13, 0}), "others used 1.3 of 2 cores");
  EXPECT_EQ(told({10, 2, 0, 1}), "the hypervisor used 0.10 of 2 cores");
  EXPECT_EQ(told({10, 2, 13, 1}), "others used 1.3 and the hypervisor 0.10 of 2 cores");
  EXPECT_TRUE(is_heavy({10, 2, 1.1, 0}));
  EXPECT_FALSE(is_heavy({10, 64, 20, 0}));  // 2 of 64 cores
}

}  // namespace
}  // namespace flashbench
