// The provider naive on a GPU: what verified sweeps do not cover.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/cuda.h"
#include "providers/providers.h"

namespace flashbench {
namespace {

Problem naive_problem(Pass pass, Dtype dtype, Layout layout,
                      const std::vector<RequestLengths>& requests) {
  Problem p;
  p.pass = pass;
  p.dtype = dtype;
  p.layout = layout;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.set_lengths(std::make_shared<const Lengths>(requests));
  return p;
}

TEST(CudaNaive, TakesMoreRequestsThanItHasRoomForAtOnce) {
  const auto provider = make_cuda_naive_provider(CudaNaiveScores::own_dtype);
  EXPECT_THAT(provider->optional_axes(), testing::Contains("lengths"));
  const std::vector<RequestLengths> one{{100, 200}}, many(5, {100, 200});
  const auto bytes = [&](Pass pass, const std::vector<RequestLengths>& requests) {
    return provider->workspace_bytes(naive_problem(pass, Dtype::bf16, Layout::ragged, requests),
                                     DeviceInfo());
  };
  EXPECT_EQ(bytes(Pass::forward, many), bytes(Pass::forward, one));
  constexpr int64_t kProbabilities = 4 * 100 * 200 * 2;
  EXPECT_EQ(bytes(Pass::backward, many), bytes(Pass::backward, one) + 4 * kProbabilities);
}

TEST(CudaNaive, AllocatesTheWorkspaceThatItSays) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const auto device = make_cuda_device(0);
  for (const CudaNaiveScores scores : {CudaNaiveScores::own_dtype, CudaNaiveScores::fp32}) {
    const auto provider = make_cuda_naive_provider(scores);
    for (const Pass pass : kPasses) {
      for (const Dtype dtype : kUnscaledDtypes) {
        const Problem p = naive_problem(pass, dtype, Layout::bhsd, {{30, 70}, {0, 9}, {50, 0}});
        const auto session = provider->prepare(p, *device);
        EXPECT_EQ(device->used().workspace, provider->workspace_bytes(p, device->info()));
        EXPECT_GE(session->requested_bytes(), p.compulsory_bytes());
        EXPECT_THAT(session->kernel(), testing::EndsWith("request by request"));
      }
    }
  }
}

Problem in_pages(Problem p) {
  p.page_size = 16;
  return p;
}

TEST(CudaNaive, CopiesTheKeysOfARequestAtATimeOutOfTheirPages) {
  const auto provider = make_cuda_naive_provider(CudaNaiveScores::own_dtype);
  EXPECT_THAT(provider->optional_axes(), testing::IsSupersetOf({"page_size", "block_table"}));
  const auto bytes = [&](const Problem& p) { return provider->workspace_bytes(p, DeviceInfo()); };
  constexpr int64_t kKeysAndValues = 2 * 2 * 200 * 64 * 2;
  const Problem many =
      naive_problem(Pass::forward, Dtype::bf16, Layout::ragged, {{100, 200}, {10, 40}, {100, 200}});
  EXPECT_EQ(bytes(in_pages(many)), bytes(many) + kKeysAndValues);
  Problem equal = naive_problem(Pass::forward, Dtype::bf16, Layout::bshd, {{100, 200}});
  equal.lengths = nullptr;
  equal.batch = 3;
  EXPECT_EQ(bytes(in_pages(equal)), bytes(equal) + 3 * kKeysAndValues);
}

TEST(CudaNaive, AllocatesTheWorkspaceThatItSaysForPages) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const auto device = make_cuda_device(0);
  for (const CudaNaiveScores scores : {CudaNaiveScores::own_dtype, CudaNaiveScores::fp32}) {
    const auto provider = make_cuda_naive_provider(scores);
    for (const Dtype dtype : kUnscaledDtypes) {
      const Problem p =
          in_pages(naive_problem(Pass::forward, dtype, Layout::bhsd, {{30, 70}, {0, 9}, {50, 0}}));
      const auto session = provider->prepare(p, *device);
      EXPECT_EQ(device->used().workspace, provider->workspace_bytes(p, device->info()));
      EXPECT_GE(session->requested_bytes(), p.compulsory_bytes());
      EXPECT_THAT(session->kernel(), testing::HasSubstr("K and V copied from their pages"));
    }
  }
}

}  // namespace
}  // namespace flashbench
