// Finds the best block sizes of our own kernels on this device. Every candidate is verified; then
// all candidates of a problem are timed together.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "kernels/attention.h"
#include "plan/config.h"

namespace flashbench {

struct TuneOptions {
  // The head dimensions that kernels are compiled for: a table row for another one would never be
  // used.
  std::vector<int64_t> head_dims{32, 64, 96, 128, 192, 256};
  std::vector<Mask> masks{Mask::none, Mask::causal_bottom_right};
  std::string family;            // empty: all tunable ones
  int64_t length = 4096;         // q_len and kv_len
  int64_t total_tokens = 16384;  // batch * length
  int64_t hidden = 2048;         // q_heads * head_dim
  // Candidates differ by a percent or two. All of them take less than two minutes on an H200.
  MeasureOptions measure{.min_samples = 40, .target_ci_width = 0.005, .max_seconds = 1};
};

struct TunedCandidate {
  kernels::BlockSizes blocks;
  std::string variant;  // e.g. "sm80_forward 128x64, 4 warps, 2 stages"
  double median = 0;    // seconds; 0 if it was not timed
  std::string reason;   // why it was not timed
};

// One kernel and problem.
struct Tuned {
  const kernels::AttentionKernel* kernel = nullptr;
  Problem problem;
  std::vector<TunedCandidate> candidates;  // fastest first
  std::optional<kernels::BlockSizes> best;
};

// The block sizes for the table: `now`, unless others are faster by more than 1%, so that equally
// fast ones do not alternate. Empty if none was timed.
std::optional<kernels::BlockSizes> best_blocks(const std::vector<TunedCandidate>& fastest_first,
                                               const kernels::BlockSizes& now);

// Tunes the tunable ones of `kernels`. Calls `report` with each kernel and problem when it is done.
// Ends early if interrupted.
std::vector<Tuned> tune(Device&, std::span<const kernels::AttentionKernel* const> kernels,
                        const TuneOptions&, const std::function<void(const Tuned&)>& report,
                        const std::function<bool()>& interrupted);

// Merges the results into the rows of a table (kernels/tuned_blocks.inc): new rows for what was
// tuned, all other rows of `table` unchanged.
std::string merge_tuned(std::string_view table, const DeviceInfo&, const std::vector<Tuned>&);

}  // namespace flashbench
