#include "measure/ceilings.h"
#include "measure/host_fma.h"
#include "measure/host_read.h"
#include "measure/pipes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace flashbench {
namespace {

TEST(Ceilings, AreMeasuredWithTheirSamples) {
  const auto device = make_host_device(2);
  MeasureOptions options;
  options.warmup_runs = 1;
  options.warmup_seconds = 0;
  options.min_samples = 2;
  options.max_samples = 2;
  const auto ceilings = measure_ceilings(*device, options, [] { return false; });
  ASSERT_EQ(ceilings.size(), 4u);
  EXPECT_EQ(ceilings[0].name, "gemm_fp32");
  EXPECT_EQ(ceilings[1].name, "copy");
  EXPECT_EQ(ceilings[2].name, "read");
  EXPECT_EQ(ceilings[3].name, "ffma");
  for (const Ceiling& ceiling : ceilings) {
    EXPECT_EQ(ceiling.measurement.seconds.size(), 2u);
    EXPECT_GT(ceiling.rate(), 0);
  }
  EXPECT_EQ(device->used().total(), 0);
}

TEST(Ceilings, HaveARatePerClockWhereTheClockIsKnown) {
  Ceiling ceiling{"exp2", "exp2/s", "", 6.4e9, {}};
  ceiling.measurement.seconds = {0.001, 0.002, 0.003};
  EXPECT_FALSE(ceiling.rate_per_clock(100));
  ceiling.measurement.states = {{.sm_mhz = 1000}, {.sm_mhz = 2000}, {.sm_mhz = 2100}};
  EXPECT_NEAR(*ceiling.rate_per_clock(100), 16, 1e-9);
  ceiling.measurement.states.assign(3, {.sm_mhz = 0});
  EXPECT_FALSE(ceiling.rate_per_clock(100));
}

Ceiling of_rate(const char* name, double rate) {
  return {name, "FLOP/s", "", rate, {{1}, 0, CacheState::warm, "interval"}};
}

TEST(Ceilings, AreDoubtedWhereTheyContradictOneAnother) {
  EXPECT_TRUE(doubts({of_rate("gemm_fp32", 90), of_rate("ffma", 100)}).empty());
  EXPECT_TRUE(doubts({of_rate("gemm_fp32", 10)}).empty());
  const auto slow = doubts({of_rate("gemm_fp32", 16), of_rate("ffma", 100)});
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].find("gemm_fp32 is 16% of what"), 0u);
  const auto fast = doubts({of_rate("gemm_fp32", 110), of_rate("ffma", 100)});
  ASSERT_EQ(fast.size(), 1u);
  EXPECT_NE(fast[0].find("one of the two ceilings is wrong"), std::string::npos);
  Ceiling beside_load = of_rate("gemm_fp32", 16);
  beside_load.measurement.load = Load{.seconds = 1, .cores = 2, .others = 1};
  const auto loaded = doubts({beside_load, of_rate("ffma", 100)});
  ASSERT_EQ(loaded.size(), 1u);
  EXPECT_EQ(loaded[0],
            "others used 1.0 of 2 cores while the ceilings were measured, which may be too low");
}

// Ten chains that all converge to 1, in every lane.
TEST(HostFma, DoesTheWorkThatItClaims) {
  const double lanes = host_fma::flops(1) / 20;
  EXPECT_NEAR(host_fma::run(100), 10 * lanes, 1e-4 * lanes);
  EXPECT_LT(host_fma::run(1), 9.9 * lanes);
}

// Rows of every length around a vector and a piece, few and many, anywhere in memory.
TEST(HostReader, ReadsEveryWordOfEveryRowOnce) {
  std::vector<std::byte> memory(size_t{1} << 16);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * i >> 3);
  for (const int64_t bytes : {0, 8, 56, 64, 72, 128, 248, 256, 264, 512, 1000, 4096}) {
    for (const int64_t rows : {0, 1, 3, 4, 5, 8, 9, 15}) {
      HostReader reader;
      uint64_t expected = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const std::byte* from = memory.data() + row * (bytes + 2);  // not aligned
        reader.add(from, bytes);
        for (int64_t byte = 0; byte < bytes; byte += 8) {
          uint64_t word;
          std::memcpy(&word, from + byte, sizeof(word));
          expected += word;
        }
      }
      EXPECT_EQ(reader.sum(), expected) << rows << " rows of " << bytes << " bytes";
    }
  }
}

TEST(Pipes, AreThoseOfTheWhitepapers) {
  // 312 TFLOP/s dense bf16 and 19.5 in fp32: an A100's 108 multiprocessors at 1410 MHz; 989.4 and
  // 66.9: an H100 SXM's 132 at 1830 and 1980 MHz.
  EXPECT_NEAR(*pipe_flops_per_clock(Dtype::bf16, 80) * 108 * 1410e6, 312e12, 1e12);
  EXPECT_NEAR(*pipe_flops_per_clock(Dtype::fp32, 80) * 108 * 1410e6, 19.5e12, 0.1e12);
  EXPECT_NEAR(*pipe_flops_per_clock(Dtype::fp16, 90) * 132 * 1830e6, 989.4e12, 1e12);
  EXPECT_NEAR(*pipe_flops_per_clock(Dtype::fp32, 90) * 132 * 1980e6, 66.9e12, 0.1e12);
  EXPECT_FALSE(pipe_flops_per_clock(Dtype::bf16, 89));
  EXPECT_FALSE(pipe_flops_per_clock(Dtype::bf16, 120));
}

}  // namespace
}  // namespace flashbench
