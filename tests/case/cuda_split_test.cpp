// Problems that several GPUs share, verified as the tool does it; skipped without a GPU. Ranks that
// share the first GPU run the same code as ranks on several, of which these take as many as there
// are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "case/case_run.h"
#include "case/support.h"
#include "device/cuda.h"
#include "device/cuda_bytes.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"
#include "providers/provider.h"
#include "providers/split/algorithm.h"
#include "tests/providers/split/wrapped_group.h"

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
    p.kv_heads = gpus * (variant % 4 < 2 ? 1 : 3);
    p.q_heads = p.kv_heads * (variant % 3 + 1);
    p.q_len = p.kv_len = length;
    constexpr std::array kHeadDims{128, 96, 64, 80, 256, 64, 160};
    p.head_dim = kHeadDims[static_cast<size_t>(variant) % kHeadDims.size()];
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
                                       testing::HasSubstr("does not wait for keys"),
                                       testing::HasSubstr("adds to no sums"),
                                       testing::HasSubstr("carry no atomic additions"),
                                       testing::HasSubstr("NCCL takes no two ranks on one GPU"),
                                       testing::HasSubstr("NCCL 2 cannot be opened")));
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
                                                          "tiled:ring", "tiled:gated",
                                                          "tiled:ring_nccl"),
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

// From one query to as many as a decoding kernel takes, fewer keys than GPUs too, and heads that
// the GPUs do not divide.
TEST(CudaSplit, DecodingMatchesTheOracle) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const Provider& dcp = provider("tiled:dcp");
  std::vector<std::unique_ptr<Device>> devices;
  for (const int64_t ranks : {2, 3, 4}) devices.push_back(shared_gpu(ranks));
  for (const int64_t ranks : {2, 4, 8}) {
    if (auto own = own_gpus(ranks)) devices.push_back(std::move(own));
  }
  int variant = 0;
  for (const auto& device : devices) {
    for (const int64_t q_len : {1, 4, 16}) {
      for (const int64_t kv_len : {1, 61, 1000, 4097, 40000}) {
        ++variant;
        Case item;
        Problem& p = item.problem;
        p.dtype = kUnscaledDtypes[static_cast<size_t>(variant % 3)];
        p.mask = kMasks[static_cast<size_t>(variant / 2 % 3)];
        p.layout = variant % 2 == 0 ? Layout::bshd : Layout::bhsd;
        p.split = Split::keys;
        p.batch = 1 + variant % 2;
        p.kv_heads = 1 + variant % 3;
        p.q_heads = p.kv_heads * (1 + variant % 4);
        p.q_len = q_len;
        p.kv_len = kv_len;
        p.head_dim = variant % 5 == 0 ? 72 : variant % 5 == 1 ? 256 : variant % 5 == 2 ? 64 : 128;
        if (variant % 7 == 0 && p.dtype != Dtype::fp32) p.head_dim_v = 40;
        p.gpus = device->info().ranks;
        item.placement = variant % 4 == 1   ? Placement::strided
                         : variant % 4 == 2 ? Placement::offset
                                            : Placement::contiguous;
        SCOPED_TRACE(p.id() + " gpus " + std::to_string(*p.gpus));
        CaseRunOptions options;
        options.time = false;
        options.repeat = 3;
        const int64_t used = device->used().total();
        const Record record = run_case(item, {&dcp}, *device, nullptr, options).at(0);
        if (record.status == Status::unsupported) {
          EXPECT_THAT(record.reason,
                      testing::AnyOf(testing::HasSubstr("multiple of 16 bytes"),
                                     testing::HasSubstr("no partial results in fp32")));
        } else {
          EXPECT_EQ(record.status, Status::ok) << record.reason;
        }
        EXPECT_EQ(device->used().total(), used);
      }
    }
  }
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

// One rank's share is that of one GPU: two ranks on the first GPU, and on two if there are.
std::vector<std::unique_ptr<Device>> pairs_of_ranks() {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(shared_gpu(2));
  if (auto own = own_gpus(2)) devices.push_back(std::move(own));
  return devices;
}

HostOutputs outputs_of(Session& session, const Problem& p, const DeviceInputs& inputs,
                       Device& device) {
  DeviceOutputs outputs(device, p, Placement::contiguous);
  session.run(inputs.view(), outputs.view());
  device.synchronize();
  return outputs.to_host();
}

// Of so many blocks that one GPU, a chunk and a share run with the same block sizes: a chunk has
// two blocks of 192 queries for each multiprocessor of an H100 or an H200.
Problem long_problem(Mask mask, int64_t head_dim, int64_t chunk) {
  Problem p{.dtype = Dtype::bf16, .mask = mask, .q_heads = 12, .kv_heads = 4};
  p.q_len = p.kv_len = 4 * chunk;
  p.head_dim = head_dim;
  p.gpus = 2;
  return p;
}

bool same_bits(HostOutputs a, HostOutputs b, const Problem& p) {
  const Outputs x = a.view(), y = b.view();
  const auto o_bytes = static_cast<size_t>(x.o.elements() * element_size(p.dtype));
  const auto logsumexp_bytes = static_cast<size_t>(p.q_heads * p.q_len) * sizeof(float);
  return std::memcmp(x.o.data, y.o.data, o_bytes) == 0 &&
         std::memcmp(x.logsumexp, y.logsumexp, logsumexp_bytes) == 0;
}

TEST(CudaSplit, OutputsEqualThoseOfOneGpuBitForBit) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  for (const auto& device : pairs_of_ranks()) {
    ThreadPool pool(8);
    for (const int64_t head_dim : {64, 96, 128, 256}) {
      for (const Mask mask : {Mask::none, Mask::causal_bottom_right}) {
        // A share reads its own keys in place if chunks are multiples of 128.
        const int64_t chunk = head_dim == 64 ? 4160 : 4224;
        Problem p = long_problem(mask, head_dim, chunk);
        const Problem alone = p.of_one_device();
        const HostTensors host(p, {}, pool);
        const DeviceInputs inputs(*device, p, Placement::contiguous, host.inputs());
        const DeviceInputs inputs_alone(*device, alone, Placement::contiguous, host.inputs());
        const auto one = provider("tiled").prepare(alone, *device);
        const HostOutputs expected = outputs_of(*one, alone, inputs_alone, *device);
        for (const char* name : {"tiled:gather", "tiled:ulysses", "tiled:gated"}) {
          const auto split = provider(name).prepare(p, *device);
          EXPECT_TRUE(same_bits(outputs_of(*split, p, inputs, *device), expected, p))
              << name << " " << p.id()
              << (device->info().ranks_share_gpus ? " on one GPU" : " on two");
        }
      }
    }
  }
}

// What a launch reads before it has fetched it is of the run before, which had other inputs.
TEST(CudaSplit, AShareReadsNothingBeforeItHasFetchedIt) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  constexpr size_t kRuns = 100;
  const auto kernels = kernels::all_kernels();
  const auto kernel = std::ranges::find(kernels, "sm90_forward", &kernels::AttentionKernel::name);
  for (const auto& device : pairs_of_ranks()) {
    ThreadPool pool(8);
    Problem p = long_problem(Mask::causal_bottom_right, 128, 4224);
    if (const auto why = (*kernel)->why_unsupported(p.of_one_device(), device->info())) {
      GTEST_SKIP() << *why;
    }
    const auto gather = provider("tiled:gather").prepare(p, *device);
    std::vector<DeviceInputs> inputs;
    std::vector<HostOutputs> expected;
    for (const uint64_t seed : {1, 2}) {
      const HostTensors host(p, {.seed = seed}, pool);
      inputs.emplace_back(*device, p, Placement::contiguous, host.inputs());
      expected.push_back(outputs_of(*gather, p, inputs.back(), *device));
    }
    EXPECT_FALSE(expected[0] == expected[1]);
    for (const char* name : {"tiled:gated", "tiled:ulysses"}) {
      const auto share = provider(name).prepare(p, *device);
      for (size_t run = 0; run < kRuns; ++run) {
        ASSERT_TRUE(outputs_of(*share, p, inputs[run % 2], *device) == expected[run % 2])
            << name << " run " << run
            << (device->info().ranks_share_gpus ? " on one GPU" : " on two");
      }
    }
  }
}

// The first step of rank 1 has a kernel that does not end until the test lets it.
class HeldUp final : public WrappedGroup {
 public:
  HeldUp(std::unique_ptr<DeviceGroup> group, volatile int* flags)
      : WrappedGroup(std::move(group)), flags_(flags) {}
  void hold_next_run() { held_ = false; }
  void when_done(int rank, const std::function<void()>& call) override {
    WrappedGroup::when_done(rank, call);
    if (rank == 1 && !std::exchange(held_, true)) {
      cuda_bytes::hold(&flags_[0], &flags_[1], 60, static_cast<cudaStream_t>(stream(1).cuda));
    }
  }

 private:
  volatile int* flags_;
  bool held_ = true;
};

TEST(CudaSplit, TheBoardNamesARankThatHangsAndItsStep) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 2 * sizeof(int)), cudaSuccess);
  auto* const flags = static_cast<volatile int*>(pinned);
  ThreadPool pool(8);
  for (const auto& device : pairs_of_ranks()) {
    for (const SplitKind& kind : kSplitKinds) {
      Problem p{.dtype = Dtype::bf16, .q_heads = 4, .kv_heads = 4, .q_len = 1024, .kv_len = 1024};
      p.gpus = 2;
      if (provider(kind.name).why_unsupported(p, device->info())) continue;
      const auto kernels = kernels::all_kernels();
      const auto kernel =
          std::ranges::find(kernels, "sm90_forward", &kernels::AttentionKernel::name);
      auto held = std::make_unique<HeldUp>(make_group(*device, 2), flags);
      HeldUp& group = *held;
      const auto session =
          make_split_session(kind,
                             {.kernel = *kernel,
                              .fp32_outputs = kind.fp32_outputs(p.pass, DeviceKind::cuda),
                              .tokens = TokenSplit::of(p)},
                             p, std::move(held));
      StepBoard board;
      session->group()->show_on(board);
      const HostTensors host(p, {}, pool);
      const DeviceInputs inputs(*device, p, Placement::contiguous, host.inputs());
      const HostOutputs expected = outputs_of(*session, p, inputs, *device);  // loads kernels
      DeviceOutputs outputs(*device, p, Placement::contiguous);
      flags[0] = 0;
      flags[1] = 0;
      group.hold_next_run();
      session->run(inputs.view(), outputs.view());
      const std::string expected_step = "rank 1 did not finish step 1 of ";
      std::string found;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (!found.starts_with(expected_step) && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        found = board.unfinished().value_or("");
      }
      EXPECT_THAT(found, testing::StartsWith(expected_step)) << kind.name;
      flags[0] = 1;
      device->synchronize();
      EXPECT_EQ(flags[1], 0) << "the kernel gave up";
      EXPECT_TRUE(outputs.to_host() == expected) << kind.name;
    }
  }
  cudaFreeHost(pinned);
}

// The last rank merges late, behind a copy.
class LateMerges final : public WrappedGroup {
 public:
  explicit LateMerges(std::unique_ptr<DeviceGroup> group)
      : WrappedGroup(std::move(group)), rank_(ranks() - 1) {
    for (Buffer& buffer : buffers_) buffer = allocate(rank_, kBytes);
  }
  void barrier(int rank) override {
    WrappedGroup::barrier(rank);
    if (rank != rank_) return;
    wait(rank, pull(rank, rank, {{buffers_[0].data(), buffers_[1].data(), kBytes}}, kNoMark));
  }

 private:
  static constexpr size_t kBytes = size_t{64} << 20;
  int rank_;
  std::array<Buffer, 2> buffers_;
};

// Of runs that are timed together, one rank begins the next while another still reads its
// results.
TEST(CudaSplit, RunsThatFollowEachOtherKeepTheirResults) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  constexpr size_t kRuns = 20;
  const SplitKind& dcp = *std::ranges::find(kSplitKinds, "tiled:dcp", &SplitKind::name);
  const auto kernels = kernels::all_kernels();
  const auto kernel = std::ranges::find(kernels, "sm90_decode", &kernels::AttentionKernel::name);
  for (const auto& device : pairs_of_ranks()) {
    ThreadPool pool(8);
    Problem p{.dtype = Dtype::bf16, .mask = Mask::causal_bottom_right, .q_heads = 8, .kv_heads = 2};
    p.q_len = 4;
    p.kv_len = 3000;
    p.head_dim = 128;
    p.gpus = 2;
    p.split = Split::keys;
    if (const auto why = (*kernel)->why_unsupported(p.of_one_device(), device->info())) {
      GTEST_SKIP() << *why;
    }
    const auto undisturbed = provider("tiled:dcp").prepare(p, *device);
    std::vector<DeviceInputs> inputs;
    std::vector<HostOutputs> expected;
    for (const uint64_t seed : {1, 2}) {
      const HostTensors host(p, {.seed = seed}, pool);
      inputs.emplace_back(*device, p, Placement::contiguous, host.inputs());
      expected.push_back(outputs_of(*undisturbed, p, inputs.back(), *device));
    }
    EXPECT_FALSE(expected[0] == expected[1]);
    const SplitParts parts{.kernel = *kernel,
                           .fp32_outputs = dcp.fp32_outputs(Pass::forward, DeviceKind::cuda),
                           .tokens = TokenSplit::of(p)};
    const auto session =
        make_split_session(dcp, parts, p, std::make_unique<LateMerges>(make_group(*device, 2)));
    std::vector<DeviceOutputs> outputs;
    for (size_t run = 0; run < kRuns; ++run) {
      outputs.emplace_back(*device, p, Placement::contiguous);
    }
    session->run(inputs[0].view(), outputs[0].view());
    device->synchronize();
    device->time([&] {
      for (size_t run = 0; run < kRuns; ++run) {
        session->run(inputs[run % 2].view(), outputs[run].view());
      }
    });
    device->synchronize();
    for (size_t run = 0; run < kRuns; ++run) {
      ASSERT_TRUE(outputs[run].to_host() == expected[run % 2])
          << "run " << run << (device->info().ranks_share_gpus ? " on one GPU" : " on two");
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
  for (const char* name :
       {"tiled:gather", "tiled:ulysses", "tiled:ring", "tiled:gated", "tiled:dcp"}) {
    if (name == std::string("tiled:dcp")) {
      item.problem.split = Split::keys;
      item.problem.q_len = 1;
    }
    const Record record = run_case(item, {&provider(name)}, *device, gemm.get(), options).at(0);
    ASSERT_EQ(record.status, Status::ok) << record.reason;
    ASSERT_TRUE(record.measurement && record.group);
    EXPECT_THAT(record.group->rank_seconds, testing::SizeIs(2));
    EXPECT_THAT(record.group->rank_seconds, testing::Each(testing::Gt(0)));
    EXPECT_THAT(record.group->sent_bytes, testing::Each(testing::Gt(0)));
    EXPECT_TRUE(record.group->shares_gpus);
    EXPECT_EQ(record.group->gpus_at_work, 1);
  }
}

}  // namespace
}  // namespace flashbench
