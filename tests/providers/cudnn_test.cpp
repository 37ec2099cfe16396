// The provider cudnn: its behaviour without a GPU, and on a GPU what verified sweeps do not cover.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "case/case_run.h"
#include "device/cuda.h"
#include "device/cudnn_library.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"
#include "providers/providers.h"
#include "tests/kernels/hopper.h"

namespace flashbench {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Problem problem(Pass pass) {
  Problem p;
  p.pass = pass;
  p.dtype = Dtype::bf16;
  p.mask = Mask::causal_top_left;
  p.batch = 2;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.q_len = p.kv_len = 300;
  p.head_dim = 64;
  return p;
}

TEST(CudnnProvider, SaysWhyItIsAbsentOrWhyItRefuses) {
  const auto provider = make_cudnn_provider(CudnnSums::any_order);
  Problem p = problem(Pass::forward);
  if (const auto why = provider->why_absent()) {
    EXPECT_THAT(*why, testing::AnyOf(StartsWith("cuDNN 9 cannot be opened: "),
                                     StartsWith("this build leaves cuDNN out: ")));
    EXPECT_EQ(provider->why_unsupported(p, DeviceInfo()), why);
    return;
  }
  if (why_no_cuda()) {
    EXPECT_THAT(provider->why_unsupported(p, DeviceInfo()).value_or(""),
                StartsWith("cuDNN " + cudnn_library().version + ": "));
  }
  p.dtype = Dtype::fp32;
  EXPECT_THAT(provider->why_unsupported(p, DeviceInfo()).value_or(""), HasSubstr("only fp16"));
  EXPECT_NE(provider->why_unsupported_placement(p, Placement::offset, DeviceInfo()), std::nullopt);
  EXPECT_EQ(provider->why_unsupported_placement(p, Placement::strided, DeviceInfo()), std::nullopt);
  p.head_dim_v = 128;
  EXPECT_NE(provider->why_unsupported_placement(p, Placement::strided, DeviceInfo()), std::nullopt);
}

TEST(CudnnProvider, TakesBytesWithAFactorForEachTensor) {
  const auto provider = make_cudnn_provider(CudnnSums::any_order);
  EXPECT_THAT(provider->optional_axes(), testing::Contains("descale"));
  Problem p = problem(Pass::forward);
  EXPECT_EQ(provider->output_dtype(p), Dtype::bf16);
  EXPECT_EQ(provider->accumulator(p), Accumulator{});
  p.dtype = Dtype::e4m3;
  EXPECT_EQ(provider->output_dtype(p), Dtype::e4m3);
  EXPECT_EQ(provider->accumulator(p).text(), "fp22");
  if (provider->why_absent()) GTEST_SKIP() << *provider->why_absent();
  const auto why = [&] { return provider->why_unsupported(p, kernels::hopper()).value_or(""); };
  for (const Descale descale : {Descale::per_head, Descale::per_block}) {
    p.descale = descale;
    EXPECT_THAT(why(), HasSubstr("one factor for each tensor"));
  }
  p.descale = Descale::per_tensor;
  p.mask = Mask::causal_bottom_right;
  p.q_len = 100;
  EXPECT_THAT(why(), HasSubstr("must begin in the top left corner"));
}

TEST(CudnnProvider, OffersAFixedOrderOfSumsInTheBackwardPassOnRequest) {
  const auto fixed = make_cudnn_provider(CudnnSums::fixed_order);
  EXPECT_FALSE(make_cudnn_provider(CudnnSums::any_order)->on_request_only());
  EXPECT_TRUE(fixed->on_request_only());
  if (fixed->why_absent()) GTEST_SKIP() << *fixed->why_absent();
  EXPECT_THAT(fixed->why_unsupported(problem(Pass::forward), DeviceInfo()).value_or(""),
              HasSubstr("only its backward pass"));
}

// Needs a GPU and a usable cuDNN.
class CudaCudnn : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    if (const auto why = provider_->why_absent()) GTEST_SKIP() << *why;
    device_ = make_cuda_device(0);
  }

  HostOutputs run(Session& session, const Problem& p, Placement placement) {
    const HostTensors host(p, InputSpec(), *device_->stream().threads);
    const DeviceInputs inputs(*device_, p, placement, host.inputs());
    const DeviceOutputs outputs(*device_, p, placement);
    session.prepare_inputs(inputs.view());
    session.run(inputs.view(), outputs.view());
    device_->synchronize();
    EXPECT_EQ(outputs.unwritten_elements(), 0);
    EXPECT_EQ(outputs.damage(), "");
    return outputs.to_host();
  }

  const std::unique_ptr<Provider> provider_ = make_cudnn_provider(CudnnSums::any_order);
  std::unique_ptr<Device> device_;
};

TEST_F(CudaCudnn, AllocatesTheWorkspaceThatItSays) {
  for (const Pass pass : kPasses) {
    const Problem p = problem(pass);
    const auto session = provider_->prepare(p, *device_);
    EXPECT_EQ(device_->used().workspace, provider_->workspace_bytes(p, device_->info()));
    EXPECT_THAT(session->kernel(), StartsWith("cudnn " + cudnn_library().version + " eng"));
    EXPECT_EQ(session->requested_bytes(), std::nullopt);
  }
  EXPECT_EQ(device_->used().workspace, 0);
}

Case case_of_bytes(int64_t head_dim, Mask mask, int64_t kv_heads) {
  Case item;
  item.problem = problem(Pass::forward);
  item.problem.dtype = Dtype::e4m3;
  item.problem.descale = Descale::per_tensor;
  item.problem.mask = mask;
  item.problem.kv_heads = kv_heads;
  item.problem.head_dim = head_dim;
  return item;
}

TEST_F(CudaCudnn, AttendsToBytes) {
  CaseRunOptions verify;
  verify.time = false;
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const Mask mask : kMasks) {
      for (const int64_t kv_heads : {4, 1}) {
        for (const auto& [q_len, kv_len] : {std::pair{300, 300}, {129, 257}, {257, 129}}) {
          for (const Placement placement : {Placement::contiguous, Placement::strided}) {
            Case item = case_of_bytes(head_dim, mask, kv_heads);
            item.problem.q_len = q_len;
            item.problem.kv_len = kv_len;
            item.inputs.distribution = Distribution::mean_v;
            item.placement = placement;
            const bool refused = mask == Mask::causal_bottom_right && q_len != kv_len &&
                                 device_->info().compute_capability < 100;
            const Record record =
                run_case(item, {provider_.get()}, *device_, nullptr, verify).at(0);
            EXPECT_EQ(name(record.status), refused ? "unsupported" : "ok")
                << item.key() << ": " << record.reason;
            EXPECT_EQ(record.output_dtype, "e4m3");
          }
        }
      }
    }
  }
}

TEST_F(CudaCudnn, AllocatesTheWorkspaceThatItSaysForBytes) {
  const Problem p = case_of_bytes(128, Mask::none, 2).problem;
  const auto session = provider_->prepare(p, *device_);
  EXPECT_EQ(device_->used().workspace, provider_->workspace_bytes(p, device_->info()));
}

Problem with_lengths(Pass pass, Layout layout, const std::vector<RequestLengths>& requests) {
  Problem p = problem(pass);
  p.layout = layout;
  p.set_lengths(std::make_shared<const Lengths>(requests));
  return p;
}

TEST_F(CudaCudnn, AllocatesTheWorkspaceThatItSaysForRequestsOfDifferentLengths) {
  EXPECT_THAT(provider_->optional_axes(), testing::Contains("lengths"));
  for (const Pass pass : kPasses) {
    for (const Layout layout : kLayouts) {
      const Problem p = with_lengths(pass, layout, {{300, 300}, {0, 7}, {20, 20}});
      const auto session = provider_->prepare(p, *device_);
      EXPECT_EQ(device_->used().workspace, provider_->workspace_bytes(p, device_->info()))
          << p.id();
    }
  }
}

Problem in_pages(Problem p, int64_t page_size) {
  p.page_size = page_size;
  return p;
}

TEST_F(CudaCudnn, AllocatesTheWorkspaceThatItSaysForPages) {
  EXPECT_THAT(provider_->optional_axes(), testing::IsSupersetOf({"page_size", "block_table"}));
  Problem equal = problem(Pass::forward);
  equal.q_len = 1;
  const Problem decoding = with_lengths(Pass::forward, Layout::ragged, {{1, 300}, {1, 7}});
  for (const Problem& p : {in_pages(equal, 16), in_pages(decoding, 16)}) {
    const auto session = provider_->prepare(p, *device_);
    EXPECT_EQ(device_->used().workspace, provider_->workspace_bytes(p, device_->info())) << p.id();
  }
}

TEST_F(CudaCudnn, ServesPagesInDenseAndStridedPoolsInTurn) {
  for (const KvLayout kv_layout : kKvLayouts) {
    Problem p = in_pages(problem(Pass::forward), 64);
    p.kv_layout = kv_layout;
    p.q_len = p.kv_len = 384;
    const auto session = provider_->prepare(p, *device_);
    const HostOutputs dense = run(*session, p, Placement::contiguous);
    EXPECT_TRUE(run(*session, p, Placement::strided) == dense);
  }
}

TEST_F(CudaCudnn, RefusesPagesWhoseNaNGetsIntoO) {
  const auto why = [&](const Problem& p) {
    return provider_->why_unsupported(p, device_->info()).value_or("");
  };
  const auto lengths = [](int64_t q_len, int64_t first, int64_t second) {
    return with_lengths(Pass::forward, Layout::bshd, {{q_len, first}, {q_len, second}});
  };
  EXPECT_EQ(why(in_pages(lengths(1, 300, 7), 16)), "");
  EXPECT_EQ(why(in_pages(lengths(9, 300, 7), 1)), "");
  EXPECT_EQ(why(in_pages(lengths(9, 384, 64), 16)), "");
  EXPECT_THAT(why(in_pages(lengths(9, 384, 70), 16)), HasSubstr("behind a request's last key"));
  EXPECT_THAT(why(in_pages(lengths(9, 192, 192), 16)), HasSubstr("NaN in page 24 of the pool"));
  EXPECT_THAT(why(in_pages(lengths(9, 384, 384), 48)), HasSubstr("power of 2"));
}

TEST_F(CudaCudnn, RefusesABatchWithoutKeys) {
  for (const Pass pass : kPasses) {
    EXPECT_THAT(provider_
                    ->why_unsupported(with_lengths(pass, Layout::ragged, {{300, 0}, {20, 0}}),
                                      device_->info())
                    .value_or(""),
                HasSubstr("there has to be a key in the batch"));
  }
}

TEST_F(CudaCudnn, ServesDenseAndStridedTensorsInTurn) {
  const Problem p = problem(Pass::forward);
  const auto session = provider_->prepare(p, *device_);
  const HostOutputs dense = run(*session, p, Placement::contiguous);
  EXPECT_TRUE(run(*session, p, Placement::strided) == dense);
  EXPECT_TRUE(run(*session, p, Placement::contiguous) == dense);
}

}  // namespace
}  // namespace flashbench
