#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "providers/providers.h"
#include "providers/split/algorithm.h"
#include "tests/kernels/attention_check.h"
#include "wrapped_group.h"

namespace flashbench {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
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

// A problem that this way can split.
Problem problem_for(const SplitKind& kind, Pass pass, Mask mask, int64_t length, int64_t gpus) {
  Problem p = problem_of(pass, mask, length, gpus);
  if (kind.splits_keys) p.split = Split::keys;
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
      p.kv_heads = gpus * (variant % 4 < 2 ? 1 : 2);
      p.q_heads = p.kv_heads * (variant % 3 + 1);
      if (variant % 5 == 0) p.head_dim_v = 24;
      SCOPED_TRACE(p.id() + " gpus " + std::to_string(gpus));
      ASSERT_EQ(split.why_unsupported(p, device->info()), std::nullopt);
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

// From one query to more than a tile of the kernel for few queries, fewer keys than devices too.
TEST(Split, DecodingMatchesTheReference) {
  const auto device = make_host_device(4);
  const Provider& dcp = provider("tiled:dcp");
  int variant = 0;
  for (const Mask mask : kMasks) {
    for (const int64_t gpus : {2, 3, 4, 7}) {
      for (const int64_t q_len : {1, 2, 3, 8, 15, 16, 17, 65}) {
        for (const int64_t kv_len : {1, 3, 16, 97, 300}) {
          Problem p = problem_of(Pass::forward, mask, kv_len, gpus);
          ++variant;
          p.split = Split::keys;
          p.q_len = q_len;
          p.dtype = kUnscaledDtypes[static_cast<size_t>(variant % 3)];
          p.layout = variant % 2 == 0 ? Layout::bshd : Layout::bhsd;
          p.batch = 1 + variant % 2;
          p.q_heads = variant % 4 == 0 ? 1 : 6;
          p.kv_heads = variant % 4 == 0 ? 1 : 1 + variant % 3;
          if (variant % 5 == 0) p.head_dim_v = 24;
          SCOPED_TRACE(p.id() + " gpus " + std::to_string(gpus));
          ASSERT_EQ(dcp.why_unsupported(p, device->info()), std::nullopt);
          const RandomInputs inputs(p);
          const RandomInputs before = inputs;
          const int64_t used = device->used().workspace;
          const auto session = dcp.prepare(p, *device);
          EXPECT_EQ(device->used().workspace - used, dcp.workspace_bytes(p, device->info()));
          CheckedOutputs outputs = outputs_of(*session, inputs);
          expect_correct(p, Expectation(inputs), outputs.view());
          CheckedOutputs again(p);
          session->run(inputs.view(), again.view());
          EXPECT_TRUE(again == outputs) << "another run gave other bits";
          EXPECT_TRUE(inputs == before) << "inputs were changed";
        }
      }
    }
  }
}

// A group as large as any.
TEST(Split, SixtyFourDevices) {
  const auto device = make_host_device(2);
  for (const SplitKind& kind : kSplitKinds) {
    for (const Pass pass : kPasses) {
      if (pass == Pass::backward && !kind.backward) continue;
      Problem p = problem_for(kind, pass, Mask::causal_bottom_right, 140, kMaxGpus);
      if (kind.splits_heads) p.q_heads = p.kv_heads = kMaxGpus;
      const RandomInputs inputs(p);
      const auto session = provider(kind.name).prepare(p, *device);
      CheckedOutputs outputs = outputs_of(*session, inputs);
      SCOPED_TRACE(kind.name);
      expect_correct(p, Expectation(inputs), outputs.view());
    }
  }
}

// The rank with the most work computes what it computes among the others, and nothing else.
TEST(Split, AShareIsTheWorkOfOneRank) {
  const auto device = make_host_device(4);
  for (const Pass pass : kPasses) {
    for (const Split split : {Split::zigzag, Split::contiguous}) {
      Problem p = problem_of(pass, Mask::causal_bottom_right, 61, 4);
      p.split = split;
      const RandomInputs inputs(p);
      const auto gather = provider("tiled:gather").prepare(p, *device);
      CheckedOutputs whole = outputs_of(*gather, inputs);
      const auto share = make_share_session(p, *device);
      CheckedOutputs outputs = outputs_of(*share, inputs);
      share->group()->only(GroupPart::computing);
      CheckedOutputs again(p);
      share->run(inputs.view(), again.view());
      EXPECT_TRUE(again == outputs) << "it needs to copy nothing again";
      EXPECT_THAT(share->group()->sent_bytes(), testing::Each(0));
      const TokenSplit tokens = TokenSplit::of(p);
      // Chunks of a zigzag have as much work if they are as long; the last one is shorter.
      const int rank = split == Split::zigzag ? 1 : 3;
      const auto tensor = [&](CheckedOutputs& of) {
        return pass == Pass::forward ? of.view().o : of.view().dq;
      };
      const TensorView found = tensor(outputs), expected = tensor(whole);
      const size_t bytes = static_cast<size_t>(p.head_dim * element_size(p.dtype));
      for (int64_t h = 0; h < p.q_heads; ++h) {
        for (int64_t row = 0; row < p.q_len; ++row) {
          const auto at = static_cast<size_t>(found.offset(0, h, row) * element_size(p.dtype));
          const auto* is = static_cast<const std::byte*>(found.data) + at;
          if (tokens.owner(static_cast<int>(row / tokens.chunk_length())) == rank) {
            EXPECT_EQ(std::memcmp(is, static_cast<const std::byte*>(expected.data) + at, bytes), 0)
                << row;
          } else {
            EXPECT_TRUE(std::all_of(is, is + bytes, [](std::byte b) {
              return b == std::byte{255};
            })) << row;
          }
        }
      }
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
  int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
    hold_up();
    return WrappedGroup::pull(rank, from, std::move(copies), mark);
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
      const Problem p = problem_for(kind, pass, Mask::causal_bottom_right, 61, 4);
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

// A copy of rank 2 that does not end until the test has read the board; or a kernel, where nothing
// is copied.
class Hung final : public WrappedGroup {
 public:
  Hung(std::unique_ptr<DeviceGroup> group, bool copies, std::future<void> released)
      : WrappedGroup(std::move(group)), copies_(copies), released_(std::move(released)) {}

  void wait(int rank, int64_t pull) override {
    if (copies_) hang(rank);
    WrappedGroup::wait(rank, pull);
  }
  Stream stream(int rank) override {
    if (!copies_) hang(rank);
    return WrappedGroup::stream(rank);
  }

 private:
  void hang(int rank) {
    if (rank == 2 && !std::exchange(hung_, true)) released_.wait();
  }

  bool copies_;
  std::future<void> released_;
  bool hung_ = false;  // only rank 2's threads read it
};

// Whatever the others are at, and whether they wait for it.
TEST(Split, TheBoardNamesARankThatHangsAndItsStep) {
  const auto device = make_host_device(4);
  for (const SplitKind& kind : kSplitKinds) {
    for (const Pass pass : kPasses) {
      if (pass == Pass::backward && !kind.backward) continue;
      const Problem p = problem_for(kind, pass, Mask::none, 64, 4);
      const RandomInputs inputs(p);
      std::promise<void> release;
      const auto session = make_split_session(
          kind, {.kernel = &cpu_kernel(pass), .tokens = TokenSplit::of(p)}, p,
          std::make_unique<Hung>(make_group(*device, 4), !kind.splits_keys, release.get_future()));
      StepBoard board;
      session->group()->show_on(board);
      CheckedOutputs outputs(p);
      std::thread running([&] { session->run(inputs.view(), outputs.view()); });
      const std::string expected =
          kind.splits_keys ? "rank 2 did not finish step 1 of 2 (attention to keys 32 to 47)"
          : kind.name == "tiled:ulysses"
              ? "rank 2 did not finish step 1 of 2 (pull of heads 2 to 2)"
          : kind.name == "tiled:ring"
              ? std::string("rank 2 did not finish step 2 of ") +
                    (pass == Pass::forward ? "4" : "5") + " (pull of keys 24 to 31 and 32 to 39)"
              : "(pull of keys ";
      std::string found;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      const auto names_it = [&] {
        return found.starts_with("rank 2") && found.find(expected) != std::string::npos;
      };
      while (!names_it() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        // The others come to their ends, or wait.
        found = board.unfinished().value_or("");
      }
      EXPECT_THAT(found, AllOf(StartsWith("rank 2 did not finish step"), HasSubstr(expected)))
          << kind.name << " " << name(pass);
      release.set_value();
      running.join();
      expect_correct(p, Expectation(inputs), outputs.view());
      EXPECT_EQ(board.unfinished(), std::nullopt);
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

// Of a partial O and a logsumexp, in fp32, what the other ranks' heads are; of queries all, from
// the rank that has them.
TEST(Split, CountTheBytesThatDecodingSends) {
  const auto device = make_host_device(4);
  Problem p = problem_of(Pass::forward, Mask::none, 64, 4);
  p.split = Split::keys;
  p.q_len = 2;
  const RandomInputs inputs(p);
  const auto session = provider("tiled:dcp").prepare(p, *device);
  outputs_of(*session, inputs);
  const int64_t head = 2 * 16 * 4;  // bytes of a head of Q or of O
  const int64_t results = 3 * (head + 2 * 4);
  EXPECT_THAT(session->group()->sent_bytes(),
              testing::ElementsAre(3 * 4 * head + results, results, results, results));
}

// The gradients of its chunks come home to a rank from each that sees them, in fp32.
TEST(Split, CountTheBytesOfGatedGradients) {
  const auto device = make_host_device(4);
  const Problem p = problem_of(Pass::backward, Mask::none, 64, 4);
  const RandomInputs inputs(p);
  const auto session = provider("tiled:gated").prepare(p, *device);
  outputs_of(*session, inputs);
  const int64_t own = 16 * 4 * 16 * 4;
  EXPECT_THAT(session->group()->sent_bytes(), testing::Each(2 * 3 * own + 2 * 3 * own));
}

// Each rank sends its chunks to every other one; of ulysses, what these compute of them. Its
// kernels store the results, which no copy sends.
TEST(Split, CountTheBytesThatEachRankSends) {
  const auto device = make_host_device(4);
  const int64_t ranks = 4, length = 64, heads = 4, dim = 16;
  const Problem p = problem_of(Pass::forward, Mask::none, length, ranks);
  const int64_t own = length / ranks * heads * dim * 4;  // bytes of a tensor that a rank has
  const RandomInputs inputs(p);
  for (const auto& [name, expected] : {std::pair{"tiled:gather", 2 * (ranks - 1) * own},
                                       {"tiled:gated", 2 * (ranks - 1) * own},
                                       {"tiled:ring", 2 * (ranks - 1) * own},
                                       {"tiled:ulysses", 3 * own * (ranks - 1) / ranks}}) {
    const auto session = provider(name).prepare(p, *device);
    outputs_of(*session, inputs);
    EXPECT_THAT(session->group()->sent_bytes(), testing::Each(expected)) << name;
    EXPECT_THAT(session->group()->rank_seconds(), testing::SizeIs(4));
  }
}

TEST(Split, OnlyCopyingAndOnlyComputingLeaveTheNextRunRight) {
  const auto device = make_host_device(4);
  for (const SplitKind& kind : kSplitKinds) {
    const Problem p = problem_for(kind, Pass::forward, Mask::causal_bottom_right, 61, 4);
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
  EXPECT_EQ(why("tiled:gated"), "");
  EXPECT_EQ(why("tiled:dcp"), "it has no backward pass");
  p = problem_of(Pass::forward, Mask::none, 64, 2);
  EXPECT_EQ(why("tiled:dcp"), "it splits keys: expected split keys, got zigzag");
  p.split = Split::keys;
  EXPECT_EQ(why("tiled:dcp"), "");
  EXPECT_EQ(why("tiled:ring"), "it splits tokens: expected split zigzag or contiguous, got keys");
  p.gpus.reset();
  EXPECT_THAT(why("tiled:gather"), HasSubstr("(gpus)"));
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
