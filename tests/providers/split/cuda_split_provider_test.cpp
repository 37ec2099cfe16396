// Which kernels the algorithms of several GPUs use, and what they refuse, which shows without a
// GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "providers/providers.h"
#include "tests/kernels/hopper.h"

namespace flashbench {
namespace {

using testing::HasSubstr;

const Provider& of_gpus(std::string_view name) {
  for (const auto& one : all_providers()) {
    if (one->name() == name && one->device_kind() == DeviceKind::cuda) return *one;
  }
  throw std::logic_error("no provider");
}

DeviceInfo hoppers(int ranks) {
  DeviceInfo info = kernels::hopper();
  info.ranks = ranks;
  return info;
}

Problem shared_problem(Pass pass, Dtype dtype, int64_t gpus) {
  Problem p{.pass = pass, .dtype = dtype, .mask = Mask::causal_bottom_right};
  p.q_heads = 8;
  p.kv_heads = 4;
  p.q_len = p.kv_len = 1000;
  p.gpus = gpus;
  return p;
}

std::string why(const char* name, const Problem& p, const DeviceInfo& info) {
  return of_gpus(name).why_unsupported(p, info).value_or("");
}

// The library is a fake, and looked for once.
class CudaSplitProvider : public testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("FLASHBENCH_NCCL", FAKE_NCCL, 1); }
};

TEST_F(CudaSplitProvider, RunsEveryDtypeInBothPasses) {
  for (const char* name : {"tiled:gather", "tiled:ulysses", "tiled:ring", "tiled:ring_nccl"}) {
    for (const Pass pass : kPasses) {
      for (const Dtype dtype : kUnscaledDtypes) {
        for (const int64_t length : {1, 5, 16, 1000}) {
          Problem p = shared_problem(pass, dtype, 4);
          p.q_len = p.kv_len = length;
          ASSERT_EQ(why(name, p, hoppers(4)), "") << name << " " << p.id();
          EXPECT_GT(of_gpus(name).workspace_bytes(p, hoppers(4)), 0);
        }
      }
    }
  }
}

TEST_F(CudaSplitProvider, DecodesEveryDtype) {
  for (const Dtype dtype : kUnscaledDtypes) {
    for (const int64_t q_len : {1, 4, 16, 65}) {
      Problem p = shared_problem(Pass::forward, dtype, 4);
      p.split = Split::keys;
      p.q_len = q_len;
      ASSERT_EQ(why("tiled:dcp", p, hoppers(4)), "") << p.id();
      EXPECT_GT(of_gpus("tiled:dcp").workspace_bytes(p, hoppers(4)), 0);
    }
  }
}

TEST_F(CudaSplitProvider, SaysHowManyGpusItNeeds) {
  const Problem p = shared_problem(Pass::forward, Dtype::bf16, 4);
  EXPECT_EQ(why("tiled:ring", p, hoppers(4)), "");
  EXPECT_EQ(why("tiled:ring", p, hoppers(8)), "");
  EXPECT_THAT(why("tiled:ring", p, hoppers(2)), HasSubstr("it needs 4 GPUs, and --device names 2"));
  EXPECT_THAT(why("tiled:ring", p, hoppers(0)), HasSubstr("it needs 4 GPUs, and --device names 1"));
}

TEST_F(CudaSplitProvider, NcclNeedsAGpuForEachRank) {
  const Problem p = shared_problem(Pass::forward, Dtype::bf16, 2);
  DeviceInfo info = hoppers(2);
  EXPECT_EQ(why("tiled:ring_nccl", p, info), "");
  info.ranks_share_gpus = true;
  EXPECT_THAT(why("tiled:ring_nccl", p, info), HasSubstr("NCCL takes no two ranks on one GPU"));
  EXPECT_EQ(why("tiled:ring", p, info), "");
}

TEST_F(CudaSplitProvider, SaysWhichKernelsCannotBeUsed) {
  const Problem p = shared_problem(Pass::forward, Dtype::bf16, 2);
  EXPECT_EQ(why("tiled:gated", p, hoppers(2)), "");
  EXPECT_EQ(why("tiled:gated", shared_problem(Pass::backward, Dtype::bf16, 2), hoppers(2)), "");
  EXPECT_THAT(why("tiled:gated", shared_problem(Pass::backward, Dtype::fp32, 2), hoppers(2)),
              HasSubstr("simt_backward: it adds to no sums that several GPUs share"));
  DeviceInfo ampere = hoppers(2);
  ampere.compute_capability = 80;
  EXPECT_THAT(why("tiled:gated", p, ampere),
              HasSubstr("sm80_forward: it does not wait for keys that arrive"));
  EXPECT_EQ(why("tiled:gated", shared_problem(Pass::backward, Dtype::bf16, 2), ampere), "");
  EXPECT_EQ(why("tiled:gather", p, ampere), "");
  EXPECT_THAT(why("tiled:ring", p, ampere),
              HasSubstr("sm80_forward: it gives no partial results in fp32"));
  EXPECT_EQ(why("tiled:ring", shared_problem(Pass::backward, Dtype::bf16, 2), ampere), "");
}

TEST_F(CudaSplitProvider, GatedBackwardNeedsLinksThatCarryAdditions) {
  DeviceInfo info = hoppers(2);
  info.ranks_add_to_others = false;
  EXPECT_THAT(why("tiled:gated", shared_problem(Pass::backward, Dtype::bf16, 2), info),
              HasSubstr("the links between these carry no atomic additions"));
  EXPECT_EQ(why("tiled:gated", shared_problem(Pass::forward, Dtype::bf16, 2), info), "");
  EXPECT_EQ(why("tiled:ulysses", shared_problem(Pass::backward, Dtype::bf16, 2), info), "");
}

TEST_F(CudaSplitProvider, KernelsWithAlignedRowsTakeNoOffset) {
  const Problem p = shared_problem(Pass::forward, Dtype::bf16, 2);
  const auto why_not =
      of_gpus("tiled:gather").why_unsupported_placement(p, Placement::offset, hoppers(2));
  EXPECT_THAT(why_not.value_or(""), HasSubstr("multiple of 16 bytes"));
  EXPECT_FALSE(
      of_gpus("tiled:gather").why_unsupported_placement(p, Placement::strided, hoppers(2)));
}

}  // namespace
}  // namespace flashbench
