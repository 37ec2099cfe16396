// Problems that several GPUs share, verified as the tool does it; skipped without a GPU. Ranks that
// share the first GPU run the same code as ranks on several, of which these take as many as there
// are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

#include "case/case_run.h"
#include "case/support.h"
#include "device/cuda.h"
#include "providers/provider.h"

namespace flashbench {
namespace {

const Provider& provider(std::string_view name) {
  for (const auto& one : all_providers()) {
    if (one->name() == name && one->device_kind() == DeviceKind::cuda) return *one;
  }
  throw std::logic_error("no provider");
}

// The first GPU, so often; or null, if another one is missing.
std::unique_ptr<Device> shared_gpu(int64_t ranks) {
  std::string selector = "cuda:0";
  for (int64_t rank = 1; rank < ranks; ++rank) selector += ",0";
  return make_device(selector, 0);
}
std::unique_ptr<Device> own_gpus(int64_t ranks) {
  std::string selector = "cuda:0";
  for (int64_t rank = 1; rank < ranks; ++rank) selector += "," + std::to_string(rank);
  try {
    return make_device(selector, 0);
  } catch (const NoDevice&) {
    return nullptr;
  }
}

class CudaSplits : public testing::TestWithParam<std::tuple<const char*, Pass, Mask>> {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  }

  // Each length with another dtype, layout, division of the tokens and of the heads.
  static Problem problem(int variant, int64_t length, int64_t gpus) {
    Problem p;
    p.pass = std::get<1>(GetParam());
    p.mask = std::get<2>(GetParam());
    p.dtype = kUnscaledDtypes[static_cast<size_t>(variant % 3)];
    p.layout = variant % 2 == 0 ? Layout::bshd : Layout::bhsd;
    p.split = variant % 4 == 0 ? Split::contiguous : Split::zigzag;
    p.batch = 1 + variant % 2;
    p.kv_heads = gpus;
    p.q_heads = gpus * (variant % 3 + 1);
    p.q_len = p.kv_len = length;
    p.head_dim = variant % 5 == 0 ? 128 : variant % 5 == 1 ? 96 : 64;
    p.gpus = gpus;
    return p;
  }

  static void expect_verified(const Problem& p, Device& device) {
    const Provider& split = provider(std::get<0>(GetParam()));
    SCOPED_TRACE(p.id() + " gpus " + std::to_string(*p.gpus));
    Case item;
    item.problem = p;
    item.placement = p.q_len % 2 == 0 ? Placement::contiguous : Placement::strided;
    if (const auto why = split.why_unsupported(p, device.info())) {
      EXPECT_THAT(*why, testing::AnyOf(testing::HasSubstr("no backward pass"),
                                       testing::HasSubstr("no partial results in fp32"),
                                       testing::HasSubstr("does not wait for keys")));
      return;
    }
    CaseRunOptions options;
    options.time = false;
    options.repeat = 3;
    const int64_t used = device.used().total();
    const Record record = run_case(item, {&split}, device, nullptr, options).at(0);
    EXPECT_EQ(record.status, Status::ok) << record.reason;
    EXPECT_EQ(device.used().total(), used);
  }
};

INSTANTIATE_TEST_SUITE_P(, CudaSplits,
                         testing::Combine(testing::Values("tiled:gather", "tiled:ulysses",
                                                          "tiled:ring", "tiled:gated"),
                                          testing::ValuesIn(kPasses), testing::ValuesIn(kMasks)),
                         [](const auto& test) {
                           const std::string name = std::get<0>(test.param);
                           return name.substr(name.find(':') + 1) + "_" +
                                  std::string(flashbench::name(std::get<1>(test.param))) + "_" +
                                  std::string(flashbench::name(std::get<2>(test.param)));
                         });

// Lengths that 2P divides and others, down to ranks without tokens, or with a second chunk that is
// empty.
TEST_P(CudaSplits, OfOneGpuMatchTheOracle) {
  int variant = 0;
  for (const int64_t gpus : {2, 4, 3}) {
    const auto device = shared_gpu(gpus);
    for (const int64_t length : {1, 2, 5, 7, 8, 13, 64, 97, 200, 1000, 2048}) {
      expect_verified(problem(++variant, length, gpus), *device);
    }
  }
}

TEST_P(CudaSplits, OfSeveralGpusMatchTheOracle) {
  int variant = 0, devices = 0;
  for (const int64_t gpus : {2, 4, 8}) {
    const auto device = own_gpus(gpus);
    if (device == nullptr) continue;
    ++devices;
    for (const int64_t length : {1, 13, 97, 1000, 2048, 5000}) {
      expect_verified(problem(++variant, length, gpus), *device);
    }
  }
  if (devices == 0) GTEST_SKIP() << "it needs several GPUs";
}

// More GPUs than the case takes are no obstacle; fewer are a reason.
TEST(CudaSplit, TakesAsManyGpusAsTheCaseHas) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const auto device = shared_gpu(3);
  Case item;
  item.problem = {.dtype = Dtype::bf16, .q_heads = 4, .kv_heads = 4, .q_len = 300, .kv_len = 300};
  CaseRunOptions options;
  options.time = false;
  for (const int64_t gpus : {2, 4}) {
    item.problem.gpus = gpus;
    const std::vector<Record> records =
        run_case(item, {&provider("tiled"), &provider("tiled:gather")}, *device, nullptr, options);
    EXPECT_EQ(records[0].status, Status::ok) << records[0].reason;
    EXPECT_EQ(records[1].status, gpus == 2 ? Status::ok : Status::unsupported) << records[1].reason;
    if (gpus == 4) {
      EXPECT_THAT(records[1].reason, testing::HasSubstr("needs 4 GPUs, and --device names 3"));
    }
  }
}

// A timed row has the times of its ranks, and says that they share a GPU.
TEST(CudaSplit, TimesItsRanks) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const auto device = shared_gpu(2);
  const auto gemm = make_gemm_ceiling(*device, Dtype::bf16);
  Case item;
  item.problem = {.dtype = Dtype::bf16, .q_heads = 4, .kv_heads = 4, .q_len = 2000, .kv_len = 2000};
  item.problem.gpus = 2;
  CaseRunOptions options;
  options.measure.max_samples = options.measure.min_samples = 3;
  for (const char* name : {"tiled:gather", "tiled:ulysses", "tiled:ring"}) {
    const Record record = run_case(item, {&provider(name)}, *device, gemm.get(), options).at(0);
    ASSERT_EQ(record.status, Status::ok) << record.reason;
    ASSERT_TRUE(record.measurement && record.group);
    EXPECT_THAT(record.group->rank_seconds, testing::SizeIs(2));
    EXPECT_THAT(record.group->rank_seconds, testing::Each(testing::Gt(0)));
    EXPECT_THAT(record.group->sent_bytes, testing::Each(testing::Gt(0)));
    EXPECT_TRUE(record.group->shares_gpus);
  }
}

}  // namespace
}  // namespace flashbench
