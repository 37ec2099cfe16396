// The forward kernel for Hopper on shares of a problem, whose launches fetch rows while they
// compute. Whichever warps are late, and on any number of multiprocessors, the shares together give
// the bits of one launch for all, which has too few keys for pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "device/cuda.h"
#include "kernels/common/launch.h"
#include "kernels/sm90/forward.cuh"
#include "tests/kernels/captured_launch.h"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/random_delay.cuh"
#include "verify/oracle.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Forward;

namespace sm90 {
namespace {

// A variant of the kernel with delays, and the block sizes of both.
struct Delayed {
  BlockSizes blocks;
  CudaKernel<Arguments> kernel;
};
template <typename T, Config kConfig>
Delayed delayed() {
  using Kernel = Forward<T, with_share(kConfig), RandomDelay>;
  return {
      {.q = kConfig.block_q,
       .kv = kConfig.block_kv,
       .warps = Kernel::kThreads / 32,
       .stages = kConfig.stages},
      {"sm90_forward", forward_kernel<Kernel>, Kernel::kThreads, sizeof(typename Kernel::Shared)}};
}

struct Sample {
  Problem problem;
  Delayed kernel;
  // Each has its queries, and fetches keys. Without any, one share has all queries and fetches all
  // tensors.
  std::vector<std::array<RowRange, 2>> ranks;
  bool in_place = true;  // whether it reads its own rows where they are
};

// Two ranks with two of four chunks each.
std::vector<std::array<RowRange, 2>> zigzag(int64_t tokens) {
  const int64_t chunk = (tokens + 3) / 4;
  return {{RowRange{0, chunk}, RowRange{3 * chunk, tokens}},
          {RowRange{chunk, 2 * chunk}, RowRange{2 * chunk, 3 * chunk}}};
}

std::vector<Sample> samples() {
  const Delayed d64 = delayed<__nv_bfloat16, configuration(64, 192, 128, 2)>();
  const Delayed d128 = delayed<__half, configuration(128, 192, 64, 4)>();
  const Delayed d256 = delayed<__nv_bfloat16, configuration(256, 128, 64, 2)>();
  constexpr auto kCausal = Mask::causal_bottom_right;
  const auto bhsd = [](Problem p) {
    p.layout = Layout::bhsd;
    return p;
  };
  return {
      {grouped_problem(Dtype::bf16, kCausal, 2, 2048, 2048, 64), d64, {}},
      {bhsd(grouped_problem(Dtype::bf16, Mask::none, 2, 1024, 1024, 48)), d64, {}},
      {grouped_problem(Dtype::fp16, kCausal, 3, 1536, 1536, 128), d128, {}},
      {grouped_problem(Dtype::fp16, Mask::none, 70, 512, 512, 120), d128, {}},
      {grouped_problem(Dtype::bf16, kCausal, 1, 1024, 1024, 256), d256, {}},
      {grouped_problem(Dtype::bf16, kCausal, 2, 2048, 2048, 64), d64, zigzag(2048)},
      {grouped_problem(Dtype::bf16, Mask::none, 2, 997, 997, 64), d64, zigzag(997), false},
      {grouped_problem(Dtype::fp16, Mask::none, 2, 1024, 1024, 128), d128, zigzag(1024)},
      {bhsd(grouped_problem(Dtype::fp16, kCausal, 2, 1301, 1301, 72)), d128, zigzag(1301), false},
      {grouped_problem(Dtype::bf16, kCausal, 1, 1024, 1024, 200), d256, zigzag(1024)}};
}

// Memory for a tensor, poisoned before each run.
class Fetched {
 public:
  Fetched(Device& device, const ConstTensorView& like, const Problem& p)
      : device_(device),
        buffer_(device.allocate(static_cast<size_t>(like.elements() * element_size(like.dtype)),
                                MemoryUse::workspace)),
        view_(dense_view<const void>(buffer_.data(), like.dtype, p.layout, like.batch, like.heads,
                                     like.length, like.head_dim)) {}
  void poison() { device_.poison(buffer_.data(), buffer_.bytes()); }
  ConstTensorView first_rows(int64_t rows) const {
    ConstTensorView view = view_;
    view.length = rows;
    return view;
  }

 private:
  Device& device_;
  Buffer buffer_;
  ConstTensorView view_;
};

class CudaSm90Shares : public testing::TestWithParam<int> {};

TEST_P(CudaSm90Shares, HaveWhatTheyFetchBeforeTheyReadIt) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const auto [p, kernel, ranks, in_place] = samples()[static_cast<size_t>(GetParam())];
  if (const auto why = kSm90Forward.why_unsupported(p, device->info())) GTEST_SKIP() << *why;

  CudaProblem one(*device, kSm90Forward, p, kernel.blocks);
  const auto stream = static_cast<cudaStream_t>(device->stream().cuda);
  const Inputs in = one.inputs();
  Fetched q(*device, in.q, p), k(*device, in.k, p), v(*device, in.v, p);
  const Buffer progress = device->allocate(kShareProgressBytes, MemoryUse::workspace);
  const Launch at{p, device->info(), kernel.blocks};
  const auto launch_share = [&](size_t rank, void* workspace) {
    const bool all_queries = ranks.empty();
    Share share{.queries = {RowRange{0, 0}, RowRange{0, p.q_len}}, .progress = progress.data()};
    int64_t keys = p.kv_len;
    if (all_queries) {
      share.all_q = in.q;
      share.own_rows = {RowRange{128, 256}, RowRange{p.q_len - 128, p.q_len}};
    } else {
      share.queries = ranks[rank];
      if (p.mask != Mask::none) keys = ranks[rank][1].end;
      if (in_place) share.own_rows = ranks[rank];
    }
    const auto first_keys = [&](ConstTensorView t) {
      t.length = keys;
      return t;
    };
    share.all_k = first_keys(in.k);
    share.all_v = first_keys(in.v);
    Launch launch = at;
    launch.share = &share;
    kSm90Forward.launch(launch,
                        {.q = all_queries ? q.first_rows(p.q_len) : in.q,
                         .k = k.first_rows(keys),
                         .v = v.first_rows(keys)},
                        one.outputs().view(), workspace, device->stream());
  };

  // Each has a workspace, which its last launch left for the next.
  struct Rank {
    Buffer workspace;
    CapturedLaunch<Arguments> captured;
  };
  std::vector<Rank> all;
  for (size_t rank = 0; rank < std::max<size_t>(1, ranks.size()); ++rank) {
    Rank& one_rank = all.emplace_back();
    one_rank.workspace = device->allocate(kSm90Forward.workspace_bytes(at), MemoryUse::workspace);
    one_rank.captured =
        captured_launch<Arguments>([&] { launch_share(rank, one_rank.workspace.data()); }, stream);
  }
  const auto hash_of_run = [&](unsigned warpgroups, unsigned run, int64_t thread_blocks) {
    one.outputs().poison();
    hold_up(warpgroups, run, stream);
    for (Rank& rank : all) {
      for (Fetched* fetched : {&q, &k, &v}) fetched->poison();
      FLASHBENCH_CUDA(cudaMemsetAsync(progress.data(), 0, kShareProgressBytes, stream));
      launch_kernel(kernel.kernel, std::min<int64_t>(thread_blocks, rank.captured.grid.x),
                    rank.captured.arguments, device->stream());
      finish_or_exit({device->stream()}, 10, p.id() + " in run " + std::to_string(run));
    }
    return one.outputs().hash();
  };

  one.outputs().poison();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (Fetched* fetched : {&q, &k, &v}) fetched->poison();
    launch_share(rank, all[rank].workspace.data());
    finish_or_exit({device->stream()}, 10, p.id());
  }
  EXPECT_EQ(one.outputs().damage(), "");
  EXPECT_EQ(one.outputs().unwritten_elements(), 0);
  const uint64_t undelayed = one.outputs().hash();
  HostOutputs host = one.outputs().to_host();
  const Oracle oracle(p, one.host_inputs(), Dtype::fp32, {}, *device);
  const Verdict verdict = oracle.judge(host.view());
  EXPECT_TRUE(verdict.passed()) << verdict.reason;

  constexpr unsigned kRuns = 60, kSubsets = 16;  // of a producer and up to three consumers
  constexpr int64_t kGrids[] = {1, 3, 1 << 20};
  for (unsigned run = 1; run <= kRuns; ++run) {
    ASSERT_EQ(hash_of_run(run % kSubsets, run, kGrids[run % 3]), undelayed)
        << "run " << run << ", warpgroups held up " << run % kSubsets << ", at most "
        << kGrids[run % 3] << " thread blocks";
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaSm90Shares, testing::Range(0, static_cast<int>(samples().size())),
                         [](const auto& info) {
                           const Sample sample = samples()[static_cast<size_t>(info.param)];
                           return test_name(sample.problem) +
                                  (sample.ranks.empty() ? "_of_heads" : "_of_queries");
                         });

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
