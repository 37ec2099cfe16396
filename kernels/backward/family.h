// The descriptor of a backward pass on tensor cores: what is the same whatever its main kernel.
#pragma once

#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/backward/backward.h"
#include "kernels/backward/split.h"
#include "kernels/common/blocks.h"
#include "kernels/common/launch.h"

namespace flashbench::kernels::backward {

// `Main` says what its kernel is called (kName, kFamily), whether it is deterministic
// (kDeterministic), splits the last wave (kSplitsLastWave), knows windows and lengths
// (kKnowsRequests) and goes backwards (work.cuh; kGoesBackwards), whether it and the kernel behind
// it start early (kStart), and which problems and blocks it takes (why_unsupported, candidates,
// choose); and it gives the kernel of a launch, which may have blocks of keys in pieces (kernel),
// the one that lists its work, if it needs one (lister), whether its thread blocks are persistent
// (is_persistent), how it tiles the accumulators of dQ (dq_tiles), and its arguments (arguments).
template <typename Main>
struct Family {
  static constexpr MainKernel kMain{.deterministic = Main::kDeterministic,
                                    .splits_last_wave = Main::kSplitsLastWave};

  static bool is_in_pieces(const Launch& at) {
    return split_blocks(at, choose_parts(at, kMain), kMain).pieces > 1;
  }

  static std::vector<KernelFacts> facts(const Launch& at) {
    std::vector<KernelFacts> all{kernel_facts(dot_do_o(at.problem).kernel),
                                 kernel_facts(Main::kernel(at, is_in_pieces(at))),
                                 kernel_facts(convert(at, Main::dq_tiles(at)).kernel)};
    if (const auto lister = Main::lister(at)) all.insert(all.begin(), kernel_facts(*lister));
    return all;
  }

  static std::string variant(const Launch& at) {
    return std::string(Main::kName) + " " + describe_main(at, kMain);
  }

  static size_t workspace_bytes(const Launch& at) { return backward::workspace_bytes(at, kMain); }

  static int64_t requested_bytes(const Launch& at) { return backward::requested_bytes(at, kMain); }

  static void launch(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                     Stream stream) {
    Arguments shared = backward::arguments(at, in, out, workspace, kMain);
    shared.sections = sections(at, shared.parts, Main::kGoesBackwards);
    const auto arguments = Main::arguments(at, in, out, shared);
    const auto lister = Main::lister(at);
    if (lister) {
      launch_kernel(*lister, listing_thread_blocks(shared, lister->threads), arguments, stream);
    }
    launch_first(at, shared, stream, lister ? Main::kStart : Start::after_end);
    launch_kernel(Main::kernel(at, shared.pieces > 1),
                  main_thread_blocks(at, shared, Main::is_persistent(at)), arguments, stream,
                  Main::kStart);
    launch_last(at, shared, stream, Main::kStart, Main::dq_tiles(at));
  }

  static int64_t key_sum_columns(const Problem& p) { return compiled_head_dim(p.head_dim); }

  // Blocks are tuned for the kernel that is not deterministic.
  static constexpr AttentionKernel descriptor() {
    return {.name = Main::kName,
            .family = Main::kFamily,
            .device = DeviceKind::cuda,
            .pass = Pass::backward,
            .needs_aligned_rows = true,
            .knows_windows = Main::kKnowsRequests,
            .knows_lengths = Main::kKnowsRequests,
            .knows_fp32_outputs = true,
            .why_unsupported = Main::why_unsupported,
            .candidates = Main::kDeterministic ? nullptr : Main::candidates,
            .choose = Main::choose,
            .variant = variant,
            .workspace_bytes = workspace_bytes,
            .requested_bytes = requested_bytes,
            .facts = facts,
            .key_sum_columns = Main::kDeterministic ? nullptr : key_sum_columns,
            .store_key_sums = Main::kDeterministic ? nullptr : store_key_sums,
            .launch = launch};
  }
};

}  // namespace flashbench::kernels::backward
