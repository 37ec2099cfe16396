#include "device/blas.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>
#include <vector>

namespace flashbench::blas {
namespace {

using testing::HasSubstr;

template <typename T>
void expect_product(T scale) {
  // [2, 3] times [3, 2], the first stored transposed, both within wider rows.
  const std::vector<T> a{1, 4, 0, 2, 5, 0, 3, 6, 0};
  const std::vector<T> b{1, 2, 0, 3, 4, 0, 5, 6, 0};
  std::vector<T> c{1, 1, -1, 1, 1, -1};
  gemm(Transpose::yes, Transpose::no, 2, 2, 3, scale, {a.data(), 3}, {b.data(), 3}, T{1},
       {c.data(), 3});
  EXPECT_EQ(
      c, (std::vector<T>{1 + scale * 22, 1 + scale * 28, -1, 1 + scale * 49, 1 + scale * 64, -1}));
}

TEST(Blas, MultipliesInBothPrecisions) {
  expect_product<float>(2);
  expect_product<double>(3);
}

// Debian's serial build of OpenBLAS fails this.
TEST(Blas, CallsMayComeFromManyThreads) {
  constexpr int kSize = 96, kThreads = 16, kCalls = 100;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&wrong, value = static_cast<float>(t + 1)] {
      const std::vector<float> a(kSize * kSize, 1), b(kSize * kSize, value);
      std::vector<float> c(kSize * kSize);
      for (int call = 0; call < kCalls; ++call) {
        gemm(Transpose::no, Transpose::no, kSize, kSize, kSize, 1.0f, {a.data(), kSize},
             {b.data(), kSize}, 0.0f, {c.data(), kSize});
        for (const float x : c) wrong += x != kSize * value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Blas, TakesKernelsForWhatTheProcessorCanDo) {
  if (core_for_this_processor().empty() || std::getenv("OPENBLAS_CORETYPE") != nullptr) {
    GTEST_SKIP() << "OpenBLAS chooses here, or the user";
  }
  EXPECT_EQ(core(), core_for_this_processor());
}

TEST(Blas, SaysThatTheAddressSpaceIsTooSmall) {
  EXPECT_EQ(why_no_room(1), std::nullopt);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit tight{rlim_t{64} << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  const auto why = why_no_room(2);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_TRUE(why);
  EXPECT_THAT(*why, HasSubstr("256 MiB"));
}

}  // namespace
}  // namespace flashbench::blas
