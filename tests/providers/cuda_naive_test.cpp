// The provider naive on a GPU: what verified sweeps do not cover.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "case/case_run.h"
#include "device/cuda.h"
#include "providers/providers.h"
#include "tests/kernels/hopper.h"

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

Case naive_case_of_bytes(Mask mask, int64_t q_len, int64_t kv_len, int64_t head_dim) {
  Case item;
  item.problem.dtype = Dtype::e4m3;
  item.problem.mask = mask;
  item.problem.batch = 2;
  item.problem.q_heads = 4;
  item.problem.kv_heads = 2;
  item.problem.q_len = q_len;
  item.problem.kv_len = kv_len;
  item.problem.head_dim = head_dim;
  return item;
}

TEST(CudaNaive, SaysWhichBytesItRefuses) {
  const auto provider = make_cuda_naive_provider(CudaNaiveScores::own_dtype);
  EXPECT_THAT(provider->optional_axes(), testing::Contains("descale"));
  Problem p = naive_case_of_bytes(Mask::none, 300, 300, 64).problem;
  EXPECT_EQ(provider->scores_dtype(p), Dtype::bf16);
  EXPECT_EQ(make_cuda_naive_provider(CudaNaiveScores::fp32)->scores_dtype(p), Dtype::fp32);
  EXPECT_EQ(provider->output_dtype(p), Dtype::bf16);
  EXPECT_EQ(provider->accumulator(p).text(), "promoted:128");
  EXPECT_EQ(provider->accumulator({.dtype = Dtype::bf16}), Accumulator{});

  const auto why = [&](const DeviceInfo& device) {
    return provider->why_unsupported(p, device).value_or("");
  };
  DeviceInfo ampere = kernels::hopper();
  ampere.compute_capability = 80;
  EXPECT_THAT(why(ampere), testing::HasSubstr("needs compute capability 8.9"));
  p.batch = 40000;
  EXPECT_THAT(why(kernels::hopper()), testing::HasSubstr("at most 65535 products"));
  p.descale = Descale::per_block;
  EXPECT_THAT(why(kernels::hopper()), testing::HasSubstr("blocks of V with factors of their own"));
}

TEST(CudaNaive, OfBytesHasRoomForTheScoresOfABlockOfQueries) {
  const auto bytes = [](CudaNaiveScores scores, int64_t q_len) {
    return make_cuda_naive_provider(scores)->workspace_bytes(
        naive_case_of_bytes(Mask::none, q_len, 8192, 128).problem, kernels::hopper());
  };
  for (const auto scores : {CudaNaiveScores::own_dtype, CudaNaiveScores::fp32}) {
    EXPECT_EQ(bytes(scores, 16384), bytes(scores, 4096));
  }
  constexpr int64_t kScores = int64_t{2} * 4 * 1024 * 8192;
  EXPECT_EQ(bytes(CudaNaiveScores::fp32, 4096),
            bytes(CudaNaiveScores::own_dtype, 4096) + 2 * kScores);
}

// Needs a GPU that multiplies bytes.
class CudaNaiveBytes : public testing::TestWithParam<CudaNaiveScores> {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    device_ = make_cuda_device(0);
    const Problem p = naive_case_of_bytes(Mask::none, 300, 300, 64).problem;
    if (const auto why = provider_->why_unsupported(p, device_->info())) GTEST_SKIP() << *why;
  }

  void expect_ok(const Case& item) {
    CaseRunOptions verify;
    verify.time = false;
    const Record record = run_case(item, {provider_.get()}, *device_, nullptr, verify).at(0);
    EXPECT_EQ(name(record.status), "ok") << item.key() << ": " << record.reason;
  }

  const std::unique_ptr<Provider> provider_ = make_cuda_naive_provider(GetParam());
  std::unique_ptr<Device> device_;
};

TEST_P(CudaNaiveBytes, AttendsWithAnyMaskAndLength) {
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const Mask mask : kMasks) {
      for (const auto& [q_len, kv_len] : {std::pair{300, 300}, {129, 257}, {257, 129}, {1, 77}}) {
        for (const Distribution distribution :
             {Distribution::normal, Distribution::outliers, Distribution::nan_key}) {
          Case item = naive_case_of_bytes(mask, q_len, kv_len, head_dim);
          item.inputs.distribution = distribution;
          expect_ok(item);
        }
      }
    }
  }
}

TEST_P(CudaNaiveBytes, AttendsWithAnyHeadsFactorsAndPlacement) {
  for (const Descale descale : {Descale::per_tensor, Descale::per_head}) {
    for (const int64_t kv_heads : {4, 2, 1}) {
      for (const Layout layout : kDenseLayouts) {
        for (const Placement placement : kPlacements) {
          Case item = naive_case_of_bytes(Mask::causal_bottom_right, 77, 203, 72);
          item.problem.descale = descale;
          item.problem.kv_heads = kv_heads;
          item.problem.layout = layout;
          item.problem.set_value_dim(40);
          item.placement = placement;
          item.inputs.distribution = Distribution::outliers;
          expect_ok(item);
        }
      }
    }
  }
}

TEST_P(CudaNaiveBytes, AttendsInBlocksOfQueries) {
  for (const Mask mask : kMasks) {
    for (const auto& [q_len, kv_len] : {std::pair{2100, 1500}, {1500, 2100}}) {
      Case item = naive_case_of_bytes(mask, q_len, kv_len, 64);
      expect_ok(item);
      item.problem.window_left = 100;
      item.problem.scale = -0.2;
      expect_ok(item);
    }
  }
}

// Around the most keys of each kernel between the products.
TEST_P(CudaNaiveBytes, AttendsToRowsOfAnyLength) {
  for (const int64_t most : {512, 1024, 2048, 4096, 8192, 16384, 32768}) {
    for (const int64_t kv_len : {most, most + 1}) {
      Case item = naive_case_of_bytes(Mask::causal_bottom_right, 3, kv_len, 64);
      item.inputs.distribution = Distribution::mean_v;
      expect_ok(item);
    }
  }
}

TEST_P(CudaNaiveBytes, AllocatesTheWorkspaceThatItSays) {
  for (const auto& [q_len, kv_len] : {std::pair{30, 70}, {2100, 77}}) {
    const Problem p = naive_case_of_bytes(Mask::causal_bottom_right, q_len, kv_len, 72).problem;
    const auto session = provider_->prepare(p, *device_);
    EXPECT_EQ(device_->used().workspace, provider_->workspace_bytes(p, device_->info()));
    EXPECT_GE(session->requested_bytes(), p.compulsory_bytes());
    EXPECT_THAT(session->kernel(), testing::StartsWith("naive_forward cuBLASLt, scores in "));
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaNaiveBytes,
                         testing::Values(CudaNaiveScores::own_dtype, CudaNaiveScores::fp32),
                         [](const auto& test_info) {
                           return test_info.param == CudaNaiveScores::fp32 ? "fp32" : "bf16";
                         });

}  // namespace
}  // namespace flashbench
