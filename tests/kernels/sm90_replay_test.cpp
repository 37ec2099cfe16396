// Hopper's kernels launched by one captured graph with batches whose lengths change, as services
// do: lengths, inputs and the block table are written to where the graph reads them.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda.h"
#include "tests/kernels/captured_launch.h"
#include "tests/kernels/hopper.h"
#include "tests/kernels/judged_problem.h"
#include "tests/kernels/on_gpu.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Decode, kSm90DecodeBatchInvariant;
extern const AttentionKernel kSm90Forward, kSm90ForwardParts;
extern const AttentionKernel kSm90Backward, kSm90BackwardDeterministic;

namespace {

struct Sample {
  const AttentionKernel* kernel;
  Problem told;  // what the captured launch knows: as many requests, and the most of all else
  std::vector<Problem> batches;  // short, long, and short again
};

using Batch = std::vector<RequestLengths>;

Sample sample(const AttentionKernel& kernel, const Problem& p, const std::vector<Batch>& batches) {
  const auto with = [&](const Batch& lengths) {
    Problem batch = p;
    batch.pass = kernel.pass;
    batch.layout = Layout::ragged;
    batch.set_lengths(std::make_shared<const flashbench::Lengths>(lengths));
    return batch;
  };
  Sample one{&kernel, with(batches[1]), {}};
  for (const Batch& lengths : batches) one.batches.push_back(with(lengths));
  return one;
}

std::vector<Sample> samples() {
  constexpr auto kNone = Mask::none, kBottom = Mask::causal_bottom_right,
                 kTop = Mask::causal_top_left;
  constexpr auto kBf16 = Dtype::bf16, kFp16 = Dtype::fp16;
  // Lengths come from the batches.
  const auto shape = [](Dtype dtype, Mask mask, int64_t kv_heads, int64_t head_dim) {
    return grouped_problem(dtype, mask, kv_heads, 1, 1, head_dim);
  };
  const std::vector<Batch> steps{{{1, 10}, {1, 700}, {1, 1}, {1, 0}},
                                 {{1, 20000}, {1, 3000}, {1, 64}, {1, 9000}},
                                 {{1, 5000}, {0, 0}, {1, 20000}, {1, 3}}};
  const std::vector<Batch> drafts{{{4, 10}, {1, 700}, {0, 1}, {2, 0}},
                                  {{3, 9000}, {7, 3000}, {7, 640}, {7, 9000}},
                                  {{7, 5000}, {0, 0}, {1, 9000}, {5, 3}}};
  const std::vector<Batch> prompts{{{3, 5}, {1, 1}, {0, 0}, {64, 200}},
                                   {{700, 1500}, {1, 900}, {400, 400}, {129, 2000}},
                                   {{200, 60}, {0, 2000}, {700, 700}, {5, 1000}}};
  const std::vector<Batch> chunks{{{3, 5}, {1, 1}, {0, 0}, {64, 200}, {0, 9}},
                                  {{70, 5000}, {0, 5}, {3, 0}, {100, 3000}, {129, 64}},
                                  {{129, 90}, {0, 5000}, {100, 1000}, {3, 64}, {20, 1500}}};
  return {sample(kSm90Decode, shape(kBf16, kNone, 2, 128), steps),
          sample(kSm90Decode, shape(kFp16, kBottom, 3, 64), drafts),
          sample(kSm90Decode, in_pages(shape(kBf16, kNone, 2, 128), 16), steps),
          sample(kSm90Decode, in_pages(shape(kFp16, kBottom, 3, 96), 1), drafts),
          sample(kSm90DecodeBatchInvariant, in_pages(shape(kBf16, kBottom, 2, 128), 64), drafts),
          sample(kSm90Forward, shape(kBf16, kBottom, 2, 128), prompts),
          sample(kSm90Forward, shape(kFp16, kNone, 8, 64), prompts),
          sample(kSm90Forward, shape(kBf16, kTop, 2, 256), prompts),
          sample(kSm90Forward, in_pages(shape(kBf16, kBottom, 2, 128), 16), prompts),
          sample(kSm90ForwardParts, shape(kBf16, kBottom, 1, 128), chunks),
          sample(kSm90ForwardParts, in_pages(shape(kBf16, kBottom, 1, 128), 16), chunks),
          sample(kSm90Backward, shape(kBf16, kNone, 8, 64), prompts),
          sample(kSm90Backward, shape(kFp16, kBottom, 2, 128), prompts),
          sample(kSm90Backward, shape(kBf16, kTop, 2, 256), prompts),
          sample(kSm90BackwardDeterministic, shape(kFp16, kBottom, 2, 128), prompts)};
}

// What a captured launch was told stays true.
TEST(Sm90Replay, HasBatchesWithinWhatTheLaunchKnows) {
  for (const Sample& one : samples()) {
    const Problem& told = one.told;
    EXPECT_EQ(one.kernel->why_unsupported(told, hopper()), std::nullopt) << told.id();
    for (const Problem& p : one.batches) {
      EXPECT_EQ(p.invalid(), std::nullopt) << p.id();
      EXPECT_EQ(p.batch, told.batch);
      EXPECT_LE(p.q_len, told.q_len);
      EXPECT_LE(p.kv_len, told.kv_len);
      EXPECT_LE(p.q_tokens(), told.q_tokens());
      EXPECT_LE(p.kv_tokens(), told.kv_tokens());
      if (p.is_paged()) {
        EXPECT_LE(p.pool_pages(), told.pool_pages());
      }
    }
  }
}

class CudaSm90Replay : public testing::TestWithParam<int> {};

TEST_P(CudaSm90Replay, IsRightWhateverTheLengths) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const Sample one = samples()[static_cast<size_t>(GetParam())];
  if (const auto why = one.kernel->why_unsupported(one.told, device->info())) GTEST_SKIP() << *why;

  CudaProblem told(*device, *one.kernel, one.told);
  const CapturedGraph graph([&] { told.launch(); },
                            static_cast<cudaStream_t>(device->stream().cuda));
  std::deque<JudgedProblem> batches;
  for (const Problem& p : one.batches) batches.emplace_back(*device, *one.kernel, p);
  for (int round = 0; round < 3; ++round) {
    for (JudgedProblem& batch : batches) {
      const Problem& p = batch.cuda.problem();
      SCOPED_TRACE(p.id() + " in round " + std::to_string(round));
      told.take_inputs(batch.cuda);
      told.outputs().poison();
      graph.launch();
      finish_or_exit({device->stream()}, 10, p.id());
      EXPECT_EQ(told.outputs().damage(), "");
      EXPECT_EQ(told.outputs().unwritten_elements(),
                told.output_elements() - batch.cuda.output_elements());
      batch.cuda.outputs().poison();
      told.copy_outputs(batch.cuda);
      batch.expect_right();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaSm90Replay, testing::Range(0, static_cast<int>(samples().size())),
                         [](const auto& test_info) {
                           const Sample one = samples()[static_cast<size_t>(test_info.param)];
                           return std::string(one.kernel->name) + "_" + test_name(one.told);
                         });

}  // namespace
}  // namespace flashbench::kernels
