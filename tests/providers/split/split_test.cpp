#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "providers/providers.h"
#include "providers/split/algorithm.h"
#include "tests/kernels/attention_check.h"
#include "wrapped_group.h"

namespace flashbench {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const kernels::AttentionKernel& cpu_kernel(Pass pass) {
  for (const kernels::AttentionKernel* kernel : kernels::all_kernels()) {
    if (kernel->device == DeviceKind::cpu && kernel->pass == pass) return *kernel;
  }
  throw std::logic_error("no kernel");
}

const Provider& provider(std::string_view name) {
  for (const auto& one : all_providers()) {
    if (one->name() == name && one->device_kind() == DeviceKind::cpu) return *one;
  }
  throw std::logic_error("no provider");
}

CheckedOutputs outputs_of(Session& session, const RandomInputs& inputs) {
  session.prepare_inputs(inputs.view());
  CheckedOutputs outputs(inputs.problem());
  session.run(inputs.view(), outputs.view());
  return outputs;
}

Problem problem_of(Pass pass, Mask mask, int64_t length, int64_t gpus) {
  Problem p{
      .pass = pass, .mask = mask, .q_heads = 4, .kv_heads = 4, .q_len = length, .kv_len = length};
  p.head_dim = 16;
  p.gpus = gpus;
  return p;
}

class Splits : public testing::TestWithParam<std::tuple<const char*, Pass, Mask>> {};

INSTANTIATE_TEST_SUITE_P(, Splits,
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
TEST_P(Splits, MatchTheReference) {
  const auto [name, pass, mask] = GetParam();
  const auto device = make_host_device(4);
  const Provider& split = provider(name);
  int variant = 0;
  for (const int64_t gpus : {2, 4, 3}) {
    for (const int64_t length : {1, 2, 5, 7, 8, 13, 64, 97, 200}) {
      Problem p = problem_of(pass, mask, length, gpus);
      ++variant;
      p.dtype = kUnscaledDtypes[static_cast<size_t>(variant % 3)];
      p.layout = variant % 2 == 0 ? Layout::bshd : Layout::bhsd;
      p.split = variant % 4 == 0 ? Split::contiguous : Split::zigzag;
      p.batch = 1 + variant % 2;
      p.q_heads = gpus * (variant % 3 + 1);
      p.kv_heads = gpus;
      if (variant % 5 == 0) p.head_dim_v = 24;
      SCOPED_TRACE(p.id() + " gpus " + std::to_string(gpus));
      if (const auto why = split.why_unsupported(p, device->info())) {
        EXPECT_EQ(*why, "it has no backward pass");
        continue;
      }
      const RandomInputs inputs(p);
      const RandomInputs before = inputs;
      const Expectation expected(inputs);
      const int64_t used = device->used().workspace;
      const auto session = split.prepare(p, *device);
      EXPECT_EQ(device->used().workspace - used, split.workspace_bytes(p, device->info()));
      CheckedOutputs outputs = outputs_of(*session, inputs);
      expect_correct(p, expected, outputs.view());
      CheckedOutputs again(p);
      session->run(inputs.view(), again.view());
      EXPECT_TRUE(again == outputs) << "another run gave other bits";
      EXPECT_TRUE(inputs == before) << "inputs were changed";
    }
  }
}

// Where chunks are whole blocks, each query meets the keys in the order of one device.
TEST(Split, EqualOneDeviceBitForBit) {
  const auto device = make_host_device(4);
  for (const char* name : {"tiled:gather", "tiled:ulysses", "tiled:gated"}) {
    for (const Mask mask : {Mask::none, Mask::causal_bottom_right}) {
      for (const Dtype dtype : kUnscaledDtypes) {
        for (const int64_t gpus : {2, 4}) {
          Problem p = problem_of(Pass::forward, mask, 128 * 2 * gpus, gpus);
          p.dtype = dtype;
          const RandomInputs inputs(p);
          const auto split = provider(name).prepare(p, *device);
          Problem alone = p;
          alone.gpus.reset();
          const auto one = provider("tiled").prepare(alone, *device);
          EXPECT_TRUE(outputs_of(*split, inputs).same_bits(outputs_of(*one, inputs)))
              << name << " " << p.id();
        }
      }
    }
  }
}

// Holds up ranks at every step, each time for another while.
class Delayed final : public WrappedGroup {
 public:
  Delayed(std::unique_ptr<DeviceGroup> group, unsigned seed)
      : WrappedGroup(std::move(group)), random_(seed) {}

  Stream stream(int rank) override {
    hold_up();
    return WrappedGroup::stream(rank);
  }
  int64_t pull(int rank, int from, std::vector<RowCopy> copies) override {
    hold_up();
    return WrappedGroup::pull(rank, from, std::move(copies));
  }
  void wait(int rank, int64_t pull) override {
    hold_up();
    WrappedGroup::wait(rank, pull);
  }
  void barrier(int rank) override {
    hold_up();
    WrappedGroup::barrier(rank);
  }

 private:
  void hold_up() {
    int microseconds = 0;
    {
      const std::lock_guard lock(mutex_);
      microseconds = std::uniform_int_distribution(-300, 300)(random_);
    }
    if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  }

  std::mutex mutex_;
  std::mt19937 random_;
};

TEST(Split, GiveTheSameBitsHoweverRanksAreHeldUp) {
  const auto device = make_host_device(4);
  for (const SplitKind& kind : kSplitKinds) {
    for (const Pass pass : kPasses) {
      if (pass == Pass::backward && !kind.backward) continue;
      const Problem p = problem_of(pass, Mask::causal_bottom_right, 61, 4);
      const RandomInputs inputs(p);
      const SplitParts parts{.kernel = &cpu_kernel(pass), .tokens = TokenSplit::of(p)};
      const auto undisturbed = make_split_session(kind, parts, p, make_group(*device, 4));
      const CheckedOutputs expected = outputs_of(*undisturbed, inputs);
      const auto session =
          make_split_session(kind, parts, p, std::make_unique<Delayed>(make_group(*device, 4), 1));
      for (int run = 0; run < 100; ++run) {
        CheckedOutputs outputs(p);
        session->run(inputs.view(), outputs.view());
        ASSERT_TRUE(outputs == expected) << kind.name << " " << name(pass) << " run " << run;
      }
    }
  }
}

std::atomic<int> launches{0};

// Rank by rank: whichever fails, the others end too.
TEST(Split, AFailureOfOneRankEndsAll) {
  static const kernels::AttentionKernel broken = [] {
    kernels::AttentionKernel kernel = cpu_kernel(Pass::backward);
    kernel.launch = [](const kernels::Launch& at, const Inputs& in, const Outputs& out,
                       void* workspace, Stream stream) {
      if (++launches == 3) throw std::runtime_error("rank lost");
      cpu_kernel(Pass::backward).launch(at, in, out, workspace, stream);
    };
    return kernel;
  }();
  const auto device = make_host_device(4);
  for (const SplitKind& kind : kSplitKinds) {
    if (!kind.backward) continue;
    const Problem p = problem_of(Pass::backward, Mask::none, 64, 4);
    const RandomInputs inputs(p);
    const auto session = make_split_session(kind, {.kernel = &broken, .tokens = TokenSplit::of(p)},
                                            p, make_group(*device, 4));
    launches = 0;
    EXPECT_THAT([&] { outputs_of(*session, inputs); },
                ThrowsMessage<std::runtime_error>(HasSubstr("rank lost")))
        << kind.name;
    CheckedOutputs outputs = outputs_of(*session, inputs);  // the next run is whole
    expect_correct(p, Expectation(inputs), outputs.view());
  }
}

// As docs/design.md counts them: each rank sends its chunks to every other one.
TEST(Split, CountTheBytesThatEachRankSends) {
  const auto device = make_host_device(4);
  const int64_t ranks = 4, length = 64, heads = 4, dim = 16;
  const Problem p = problem_of(Pass::forward, Mask::none, length, ranks);
  const int64_t own = length / ranks * heads * dim * 4;  // bytes of a tensor that a rank has
  const RandomInputs inputs(p);
  for (const auto& [name, expected] :
       {std::pair{"tiled:gather", 2 * (ranks - 1) * own},
        {"tiled:gated", 2 * (ranks - 1) * own},
        {"tiled:ring", 2 * (ranks - 1) * own},
        {"tiled:ulysses",
         4 * own * (ranks - 1) / ranks + length / ranks * heads * 4 * (ranks - 1) / ranks}}) {
    const auto session = provider(name).prepare(p, *device);
    outputs_of(*session, inputs);
    EXPECT_THAT(session->group()->sent_bytes(), testing::Each(expected)) << name;
    EXPECT_THAT(session->group()->rank_seconds(), testing::SizeIs(4));
  }
}

TEST(Split, OnlyCopyingAndOnlyComputingLeaveTheNextRunRight) {
  const auto device = make_host_device(4);
  for (const SplitKind& kind : kSplitKinds) {
    const Problem p = problem_of(Pass::forward, Mask::causal_bottom_right, 61, 4);
    const RandomInputs inputs(p);
    const auto session = provider(kind.name).prepare(p, *device);
    const CheckedOutputs expected = outputs_of(*session, inputs);
    for (const GroupPart part : {GroupPart::copying, GroupPart::computing}) {
      CheckedOutputs unused(p);
      session->group()->only(part);
      session->run(inputs.view(), unused.view());
      const auto sent = session->group()->sent_bytes();
      EXPECT_THAT(sent, testing::Each(part == GroupPart::computing
                                          ? testing::Matcher<int64_t>(testing::Eq(0))
                                          : testing::Matcher<int64_t>(testing::Gt(0))))
          << kind.name;
    }
    session->group()->only(GroupPart::everything);
    EXPECT_TRUE(outputs_of(*session, inputs) == expected) << kind.name;
  }
}

TEST(Split, RefuseWhatTheyCannotSplitWithAReason) {
  const DeviceInfo info = make_host_device(1)->info();
  Problem p = problem_of(Pass::forward, Mask::none, 64, 2);
  const auto why = [&](const char* name) {
    return provider(name).why_unsupported(p, info).value_or("");
  };
  EXPECT_EQ(why("tiled:ring"), "");
  p.kv_len = 65;
  EXPECT_THAT(why("tiled:ring"), HasSubstr("expected q_len = kv_len, got 64 and 65"));
  p = problem_of(Pass::forward, Mask::none, 64, 3);
  EXPECT_THAT(why("tiled:ulysses"), HasSubstr("multiples of gpus, got 4, 4 and 3"));
  EXPECT_EQ(why("tiled:gather"), "");
  p = problem_of(Pass::backward, Mask::none, 64, 2);
  EXPECT_EQ(why("tiled:gated"), "it has no backward pass");
  p.gpus.reset();
  EXPECT_THAT(why("tiled:gather"), HasSubstr("gpus"));
}

// The reference for the speed-up of several devices.
TEST(Split, TiledTakesOneOfTheDevices) {
  const auto device = make_host_device(4);
  const Problem p = problem_of(Pass::forward, Mask::none, 64, 2);
  const RandomInputs inputs(p);
  const auto session = provider("tiled").prepare(p, *device);
  CheckedOutputs outputs = outputs_of(*session, inputs);
  expect_correct(p, Expectation(inputs), outputs.view());
  EXPECT_EQ(session->group(), nullptr);
}

}  // namespace
}  // namespace flashbench
