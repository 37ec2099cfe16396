// The configs that ship with the tool.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "plan/config.h"
#include "plan/estimate.h"

namespace flashbench {
namespace {

const std::filesystem::path kFolder = CONFIGS_DIR;

SweepConfig load(const std::string& name) {
  return load_config(kFolder / (name + ".json"), {});
}

TEST(ShippedConfigs, HaveTheExpectedCases) {
  const std::map<std::string, size_t> expected{{"quick", 20},
                                               {"cpu", 112},
                                               {"a100", 87},
                                               {"h200", 97},
                                               {"fp16", 72},
                                               {"fp32", 24},
                                               {"ladder", 24},
                                               {"calibration", 612},
                                               {"gate", 5},
                                               {"gate_trials", 4},
                                               {"short", 72},
                                               {"gpu_kernels", 1880},
                                               {"sanitize", 200},
                                               {"grouped", 174},
                                               {"models", 98},
                                               {"varlen", 38},
                                               {"decode", 92},
                                               {"decode_paged", 52},
                                               {"batch_invariant", 6},
                                               {"fp16_outliers", 2},
                                               {"serving", 32},
                                               {"generation", 30},
                                               {"packed", 96},
                                               {"split", 11},
                                               {"split_decode", 7},
                                               {"windows", 24},
                                               {"chunks", 52},
                                               {"fp8", 79},
                                               {"fp8_speed", 54},
                                               {"split_gpus", 332},
                                               {"split_h200", 14},
                                               {"split_1m", 2},
                                               {"decode_e4m3", 28},
                                               {"split_decode_gpus", 20},
                                               {"random_shapes", 120}};
  std::map<std::string, size_t> found;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem().string();
    if (name == "sweep.schema") continue;
    const SweepConfig config = load(name);
    EXPECT_EQ(config.name, name);
    EXPECT_FALSE(config.description.empty());
    for (const Case& c : config.cases) EXPECT_EQ(c.problem.invalid(), std::nullopt) << c.key();
    found[name] = config.cases.size();
  }
  EXPECT_EQ(found, expected);
}

size_t count(const SweepConfig& config, const std::string& filter) {
  const CaseFilter kept(filter);
  return static_cast<size_t>(std::count_if(config.cases.begin(), config.cases.end(),
                                           [&](const Case& c) { return kept.keeps(c); }));
}

TEST(ShippedConfigs, QuickCoversWhatItSays) {
  const SweepConfig quick = load("quick");
  EXPECT_EQ(quick.device, "cpu");
  EXPECT_EQ(count(quick, "pass=forward"), 10u);
  EXPECT_EQ(count(quick, "pass=backward"), 10u);
  EXPECT_EQ(count(quick, "dtype=bf16"), 2u);
  EXPECT_EQ(count(quick, "kv_heads=1"), 2u);
  EXPECT_EQ(count(quick, "q_len=257,kv_len=513"), 2u);
}

TEST(ShippedConfigs, CpuCoversEveryLengthAndFitsEightGibibytes) {
  const SweepConfig cpu = load("cpu");
  EXPECT_EQ(count(cpu,
                  "dtype=fp32,head_dim=64|128,seq=128|256|512|1024|2048|4096|8192,mask=none,"
                  "distribution=normal"),
            28u);
  for (const Case& c : cpu.cases) {
    const Problem& p = c.problem;
    const double scores = 4.0 * static_cast<double>(p.query_rows()) * static_cast<double>(p.kv_len);
    EXPECT_LE(3 * scores + 2.0 * static_cast<double>(estimate(c).tensor_bytes), 8.0 * (1 << 30))
        << c.key();
  }
}

TEST(ShippedConfigs, VarlenHasTheSameRequestsRaggedAndPadded) {
  const SweepConfig varlen = load("varlen");
  EXPECT_EQ(count(varlen, "layout=bshd"), 16u);
  for (const Case& c : varlen.cases) {
    ASSERT_TRUE(c.problem.lengths) << c.key();
    if (c.problem.layout != Layout::bshd) continue;
    Case ragged = c;
    ragged.problem.layout = Layout::ragged;
    EXPECT_NE(std::find(varlen.cases.begin(), varlen.cases.end(), ragged), varlen.cases.end());
  }
}

TEST(ShippedConfigs, GpuGridsAreFlashAttentions) {
  for (const char* name : {"a100", "h200", "fp16"}) {
    const SweepConfig config = load(name);
    EXPECT_EQ(config.device, "cuda");
    for (const Case& c : config.cases) {
      const Problem& p = c.problem;
      if (p.q_heads * p.head_dim != 2048 || p.q_len != 512) continue;
      EXPECT_EQ(p.batch, 32) << c.key();
    }
    EXPECT_EQ(count(config, "seq=512,head_dim=128,q_heads=16,batch=32"), 4u);
    EXPECT_EQ(count(config, "seq=16384,head_dim=64,q_heads=32,batch=1"), 4u);
  }
  EXPECT_THAT(load("ladder").providers, testing::ElementsAre("naive", "blocked", "tiled:fa1",
                                                             "tiled:sm80", "tiled:sm90", "cudnn"));
}

}  // namespace
}  // namespace flashbench
