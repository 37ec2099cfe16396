#include "host/float_modes.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

namespace flashbench {
namespace {

TEST(KeptFloatModes, PutTheDirectionOfRoundingBack) {
  const auto third = [] {
    volatile double one = 1, three = 3;
    return one / three;
  };
  const double before = third();
  {
    const KeptFloatModes kept;
    std::fesetround(FE_UPWARD);
    EXPECT_NE(third(), before);
  }
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  EXPECT_EQ(third(), before);
}

TEST(KeptFloatModes, LeaveTheModesThatWereThere) {
  std::fesetround(FE_DOWNWARD);
  {
    const KeptFloatModes kept;
    std::fesetround(FE_TONEAREST);
  }
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD);
  std::fesetround(FE_TONEAREST);
}

#ifdef __x86_64__
TEST(KeptFloatModes, EndTheFlushingOfSmallNumbers) {
  const auto half_of_the_least = [] {
    volatile float least = std::numeric_limits<float>::min();
    return least / 2;
  };
  {
    const KeptFloatModes kept;
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
    EXPECT_EQ(half_of_the_least(), 0);
  }
  EXPECT_GT(half_of_the_least(), 0);
}
#endif

// glibc's: an exception is a signal.
TEST(KeptFloatModes, EndTrapsWithTheExceptionsThatOccurred) {
  {
    const KeptFloatModes kept;
    std::feraiseexcept(FE_DIVBYZERO);
    feenableexcept(FE_INVALID);
  }
  EXPECT_EQ(fegetexcept(), 0);
  volatile double zero = 0;
  EXPECT_NE(zero / zero, 0);
}

}  // namespace
}  // namespace flashbench
