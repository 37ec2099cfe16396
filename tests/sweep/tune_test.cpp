#include "sweep/tune.h"

#include <gtest/gtest.h>

namespace flashbench {
namespace {

constexpr kernels::AttentionKernel kKernel{.name = "test_forward",
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
  return {&kKernel, p, {{{128, 64, 4, 2}, best_seconds, ""}, {{64, 64, 4, 1}, 1, ""}}};
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

TEST(Tune, WhatWasNotTimedChangesNothing) {
  const std::string table = "{\"test\", 90, Pass::forward, 64, false, {1, 2, 3, 4}},\n";
  EXPECT_EQ(merge_tuned(table, hopper(), {tuned(64, 0)}), table);
}

TEST(Tune, ATableThatIsNotThereIsMade) {
  EXPECT_EQ(merge_tuned("", hopper(), {tuned(64, 0.5)}),
            "{\"test\", 90, Pass::forward, 64, false, {128, 64, 4, 2}},\n");
}

}  // namespace
}  // namespace flashbench
