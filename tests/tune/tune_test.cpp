#include "tune/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

namespace flashbench {
namespace {

using kernels::AttentionKernel;
using kernels::BlockSizes;
using kernels::Launch;

constexpr AttentionKernel kKernel{.name = "test_forward",
                                  .family = "test",
                                  .device = DeviceKind::cuda,
                                  .pass = Pass::forward,
                                  .why_unsupported = nullptr,
                                  .variant = nullptr,
                                  .workspace_bytes = nullptr,
                                  .requested_bytes = nullptr,
                                  .launch = nullptr};

DeviceInfo hopper() {
  DeviceInfo device;
  device.kind = DeviceKind::cuda;
  device.compute_capability = 90;
  return device;
}

Tuned tuned(int64_t head_dim, double best_seconds) {
  Problem p;
  p.head_dim = head_dim;
  Tuned found{
      &kKernel, p, {{{128, 64, 4, 2}, "a", best_seconds, ""}, {{64, 64, 4, 1}, "b", 1, ""}}, {}};
  if (best_seconds > 0) found.best = found.candidates.front().blocks;
  return found;
}

TEST(Tune, NewRowsReplaceThoseOfTheSameKeyOnly) {
  const std::string table =
      "// What the rows are.\n"
      "{\"test\", 80, Pass::forward, 64, false, {1, 2, 3, 4}},\n"
      "{\"test\", 90, Pass::forward, 64, false, {1, 2, 3, 4}},\n"
      "{\"test\", 90, Pass::forward, 64, true, {1, 2, 3, 4}},\n";
  EXPECT_EQ(merge_tuned(table, hopper(), {tuned(64, 0.5), tuned(32, 0.5)}),
            "// What the rows are.\n"
            "{\"test\", 80, Pass::forward, 64, false, {1, 2, 3, 4}},\n"
            "{\"test\", 90, Pass::forward, 32, false, {128, 64, 4, 2}},\n"
            "{\"test\", 90, Pass::forward, 64, false, {128, 64, 4, 2}},\n"
            "{\"test\", 90, Pass::forward, 64, true, {1, 2, 3, 4}},\n");
}

TEST(Tune, ARowNamesTheSizeOfItsClusters) {
  Tuned pairs = tuned(64, 0.5);
  pairs.best->cluster = 2;
  EXPECT_EQ(merge_tuned("", hopper(), {pairs}),
            "{\"test\", 90, Pass::forward, 64, false, {128, 64, 4, 2, 2}},\n");
}

TEST(Tune, ARowSaysThatItsBlocksOverlap) {
  Tuned overlapped = tuned(64, 0.5);
  overlapped.best->overlaps = true;
  EXPECT_EQ(merge_tuned("", hopper(), {overlapped}),
            "{\"test\", 90, Pass::forward, 64, false, {128, 64, 4, 2, 1, true}},\n");
}

TEST(Tune, WhatWasNotTimedChangesNothing) {
  const std::string table = "{\"test\", 90, Pass::forward, 64, false, {1, 2, 3, 4}},\n";
  EXPECT_EQ(merge_tuned(table, hopper(), {tuned(64, 0)}), table);
}

TEST(Tune, ATableThatIsNotThereIsMade) {
  EXPECT_EQ(merge_tuned("", hopper(), {tuned(64, 0.5)}),
            "{\"test\", 90, Pass::forward, 64, false, {128, 64, 4, 2}},\n");
}

TEST(Tune, TheTableKeepsWhatIsAsGoodAsTheFastest) {
  const BlockSizes fast{1, 1, 1, 1}, close{2, 2, 2, 2}, slow{3, 3, 3, 3}, wrong{4, 4, 4, 4};
  const std::vector<TunedCandidate> candidates{
      {fast, "", 1, ""}, {close, "", 1.009, ""}, {slow, "", 1.02, ""}, {wrong, "", 0, "wrong"}};
  EXPECT_EQ(best_blocks(candidates, fast), fast);
  EXPECT_EQ(best_blocks(candidates, close), close);
  EXPECT_EQ(best_blocks(candidates, slow), fast);
  EXPECT_EQ(best_blocks(candidates, wrong), fast);
  EXPECT_EQ(best_blocks(candidates, {}), fast);
  EXPECT_EQ(best_blocks({}, fast), std::nullopt);
  EXPECT_EQ(best_blocks({{wrong, "", 0, "wrong"}}, wrong), std::nullopt);
}

// The CPU's forward kernel, slowed down by `q` milliseconds. With kWrong stages its outputs are
// wrong, with kFails it throws, with kFailsLater it throws from its third run on.
enum Stages { kRight, kWrong, kFails, kFailsLater };

const AttentionKernel& real_kernel() {
  return *kernels::all_kernels().front();
}

void launch_disguised(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                      Stream stream) {
  static int runs_of_the_last = 0;
  if (at.blocks.stages == kFails || (at.blocks.stages == kFailsLater && ++runs_of_the_last > 2)) {
    throw std::runtime_error("it failed on purpose");
  }
  real_kernel().launch(at, in, out, workspace, stream);
  if (at.blocks.stages == kWrong) out.logsumexp[0] += 1;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(at.blocks.q);
  while (std::chrono::steady_clock::now() < end) {
  }
}

constexpr AttentionKernel kDisguised{
    .name = "disguised",
    .family = "test",
    .device = DeviceKind::cpu,
    .pass = Pass::forward,
    .why_unsupported = [](const Problem& p, const DeviceInfo&) -> std::optional<std::string> {
      if (p.head_dim == 32) return std::nullopt;
      return "head_dim is not 32";
    },
    .candidates =
        [](const Problem&, const DeviceInfo&) {
          return std::vector<BlockSizes>{{20, 1, 1, kRight},
                                         {0, 1, 1, kWrong},
                                         {0, 1, 1, kFails},
                                         {2, 1, 1, kRight},
                                         {0, 1, 1, kFailsLater}};
        },
    .choose =
        [](const Problem&, const DeviceInfo&) {
          return BlockSizes{20, 1, 1, kRight};
        },
    .variant = [](const Launch& at) { return "disguised " + std::to_string(at.blocks.q); },
    .workspace_bytes = [](const Launch& at) { return real_kernel().workspace_bytes(at); },
    .requested_bytes = [](const Launch& at) { return real_kernel().requested_bytes(at); },
    .launch = launch_disguised};

TuneOptions small() {
  TuneOptions options;
  options.head_dims = {32, 64};
  options.masks = {Mask::causal_bottom_right};
  options.length = options.total_tokens = 64;
  options.hidden = 32;
  options.measure.warmup_seconds = 0;
  options.measure.min_samples = options.measure.max_samples = 8;
  return options;
}

TEST(Tune, TimesWhatIsRightAndSaysWhyNotTheRest) {
  const auto device = make_host_device(1);
  int reports = 0;
  const std::vector<Tuned> found = tune(
      *device, std::vector{&kDisguised, &real_kernel()}, small(), [&](const Tuned&) { ++reports; },
      [] { return false; });
  EXPECT_EQ(reports, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kernel, &kDisguised);
  EXPECT_EQ(found[0].problem.head_dim, 32);
  ASSERT_EQ(found[0].candidates.size(), 5u);
  const std::vector<TunedCandidate>& c = found[0].candidates;
  EXPECT_EQ(c[0].variant, "disguised 2");
  EXPECT_GE(c[0].median, 0.002);
  EXPECT_EQ(c[1].variant, "disguised 20");
  EXPECT_GE(c[1].median, 0.020);
  EXPECT_EQ(c[2].blocks.stages, kWrong);
  EXPECT_THAT(c[2].reason, testing::HasSubstr("logsumexp"));
  EXPECT_EQ(c[3].blocks.stages, kFails);
  EXPECT_EQ(c[3].reason, "it failed on purpose");
  EXPECT_EQ(c[4].blocks.stages, kFailsLater);
  EXPECT_EQ(c[4].reason, "it failed on purpose");
  EXPECT_EQ(found[0].best, c[0].blocks);
}

TEST(Tune, OfAnotherFamilyOrInterruptedItFindsNothing) {
  const auto device = make_host_device(1);
  TuneOptions options = small();
  const auto count = [&](bool interrupted) {
    return tune(
               *device, std::vector{&kDisguised}, options, [](const Tuned&) {},
               [&] { return interrupted; })
        .size();
  };
  EXPECT_EQ(count(false), 1u);
  EXPECT_EQ(count(true), 0u);
  options.family = "another";
  EXPECT_EQ(count(false), 0u);
}

}  // namespace
}  // namespace flashbench
