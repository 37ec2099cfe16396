// How many thread blocks share a block of keys in the backward pass.
#include "kernels/backward/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/backward/backward.h"
#include "tests/kernels/hopper.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Backward, kSm90BackwardDeterministic;

namespace backward {
namespace {

// The kernels for Hopper.
constexpr MainKernel kUnordered{.deterministic = false, .splits_last_wave = true},
    kOrdered{.deterministic = true, .splits_last_wave = false};

Problem problem(int64_t batch, int64_t q_heads, int64_t kv_heads, int64_t length, int64_t head_dim,
                Mask mask) {
  Problem p;
  p.pass = Pass::backward;
  p.dtype = Dtype::bf16;
  p.mask = mask;
  p.batch = batch;
  p.q_heads = q_heads;
  p.kv_heads = kv_heads;
  p.q_len = p.kv_len = length;
  p.head_dim = head_dim;
  return p;
}

Launch launch(const Problem& p, const DeviceInfo& device) {
  return {p, device, kSm90Backward.choose(p, device)};
}

// The same without clusters: each thread block has its keys alone.
Launch without_clusters(Launch at) {
  at.blocks.kv /= at.blocks.cluster;
  at.blocks.cluster = 1;
  return at;
}

constexpr Mask kBothMasks[] = {Mask::none, Mask::causal_bottom_right};

TEST(BackwardSplit, LeavesProblemsAloneThatFillTheGpu) {
  const DeviceInfo device = hopper();
  for (const Mask mask : kBothMasks) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (int64_t length = 512; length <= 16384; length *= 2) {
        const int64_t heads = 2048 / head_dim;
        const Problem p = problem(16384 / length, heads, heads, length, head_dim, mask);
        EXPECT_EQ(choose_parts(launch(p, device), kUnordered), 1) << p.id();
      }
    }
  }
}

// Sums in fp32 exist only where thread blocks share keys; a mask needs even parts.
TEST(BackwardSplit, SharesKeysForGradientsInFp32) {
  const DeviceInfo device = hopper();
  for (const Mask mask : kBothMasks) {
    for (const int64_t group : {1, 2, 3, 5, 8}) {
      for (const int64_t length : {1, 64, 1000, 16384}) {
        const Problem p = problem(1, 8 * group, 8, length, 128, mask);
        Launch at = launch(p, device);
        at.fp32_outputs.of_keys = true;
        const int parts = choose_parts(at, kUnordered);
        EXPECT_GE(parts, 2) << p.id();
        EXPECT_TRUE(mask == Mask::none || group % parts == 0 || parts % group == 0) << p.id();
        EXPECT_GE(kSm90Backward.workspace_bytes(at),
                  static_cast<size_t>(2 * p.kv_heads * p.kv_len * p.head_dim) * sizeof(float));
      }
    }
  }
}

TEST(BackwardSplit, GivesEveryMultiprocessorAThreadBlock) {
  const DeviceInfo device = hopper();
  for (const Mask mask : kBothMasks) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (const int64_t kv_heads : {1, 2, 4, 8}) {
        const Problem p = problem(1, 32, kv_heads, 2048, head_dim, mask);
        const Launch at = launch(p, device);
        const Arguments args = arguments(at, {}, {}, nullptr, kUnordered);
        const int64_t thread_blocks = int64_t{args.work_items} * at.blocks.cluster;
        EXPECT_GE(thread_blocks, 128) << p.id();
        EXPECT_LE(thread_blocks, 64 * 132) << p.id();
      }
    }
  }
}

// At head_dim 256 two thread blocks of a cluster share the keys of a block. There are half as many
// blocks and twice as many thread blocks for each, so the number of parts stays the same.
TEST(BackwardSplit, CountsTheThreadBlocksOfClusters) {
  const Problem p = problem(1, 32, 1, 2048, 256, Mask::none);
  const Launch at = launch(p, hopper());
  ASSERT_EQ(at.blocks.cluster, 2);
  const Launch alone = without_clusters(at);
  EXPECT_EQ(choose_parts(at, kUnordered), choose_parts(alone, kUnordered));
  EXPECT_NE(kSm90Backward.variant(at).find("clusters of 2"), std::string::npos);
}

// Each thread block of a pair reads all of Q and dO, and half of the columns of the other's K. Only
// the additions to dQ are half as many as without pairs.
TEST(BackwardSplit, CountsWhatEachThreadBlockOfAClusterReads) {
  const Problem p = problem(2, 16, 16, 2048, 256, Mask::none);
  const Launch at = launch(p, hopper());
  ASSERT_EQ(at.blocks.cluster, 2);
  const Launch alone = without_clusters(at);
  ASSERT_EQ(choose_parts(at, kUnordered), 1);
  ASSERT_EQ(choose_parts(alone, kUnordered), 1);
  const int64_t elements = p.batch * 16 * 2048 * 256;  // of Q, and of K
  const int64_t additions = elements * (2048 / 64) * static_cast<int64_t>(sizeof(float));
  const int64_t keys_of_the_other = elements / 2 * element_size(p.dtype);
  EXPECT_EQ(kSm90Backward.requested_bytes(at),
            kSm90Backward.requested_bytes(alone) - additions / 2 + keys_of_the_other);
}

// With a mask the last blocks of queries see the most keys: all parts must have the same number of
// them.
TEST(BackwardSplit, CutsAllHeadsAlikeWhereTheirBlocksDiffer) {
  const DeviceInfo device = hopper();
  int splits = 0;
  for (const int64_t group : {1, 2, 3, 7, 12}) {
    for (const int64_t length : {1, 65, 512, 1111, 5000}) {
      const Problem p = problem(1, group, 1, length, 128, Mask::causal_bottom_right);
      const int parts = choose_parts(launch(p, device), kUnordered);
      EXPECT_TRUE(group % parts == 0 || parts % group == 0) << p.id() << ": " << parts;
      splits += parts > 1;
    }
  }
  EXPECT_GT(splits, 10);
}

TEST(BackwardSplit, HasNoMorePartsThanBlocksOfQueries) {
  const Problem p = problem(1, 3, 1, 65, 128, Mask::none);
  EXPECT_LE(choose_parts(launch(p, hopper()), kUnordered), 6);
}

// The number of heads in each section.
std::vector<int64_t> heads_of_sections(const Launch& at, int64_t parts) {
  const Sections s = sections(at, parts, false);
  std::vector<int64_t> heads(s.last, s.heads);
  const int64_t batch = at.problem.lengths ? 1 : at.problem.batch;
  heads.push_back(batch * at.problem.kv_heads * parts - int64_t{s.last} * s.heads);
  return heads;
}

TEST(BackwardSplit, PutsWhatIsLeftIntoTheLastSection) {
  const DeviceInfo device = hopper();
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const int64_t kv_heads : {1, 4, 7, 14, 28}) {
      for (const int64_t length : {512, 1111, 4480, 16384}) {
        const Problem p = problem(2, 28, kv_heads, length, head_dim, Mask::causal_bottom_right);
        const Launch at = launch(p, device);
        const int64_t key_blocks = (length + at.blocks.kv - 1) / at.blocks.kv;
        const int64_t two_each = 2 * device.threads / at.blocks.cluster / key_blocks + 1;
        for (const int64_t parts : {1, 4, 8}) {
          const auto heads = heads_of_sections(at, parts);
          EXPECT_GE(heads.back(), heads.front()) << p.id() << ", " << parts;
          EXPECT_LT(heads.back(), heads.front() + std::max(heads.front(), two_each))
              << p.id() << ", " << parts;
        }
      }
    }
  }
}

// A last section of one head would begin with blocks of keys that take as long as two of the
// average, when most slots have nothing else to do.
TEST(BackwardSplit, LeavesNoTailToTheLastSection) {
  const DeviceInfo device = hopper();
  const auto of = [&](int64_t q_heads, int64_t kv_heads, int64_t length, int64_t head_dim) {
    const Problem p = problem(1, q_heads, kv_heads, length, head_dim, Mask::causal_bottom_right);
    return heads_of_sections(launch(p, device), 1);
  };
  EXPECT_THAT(of(8, 4, 4480, 256), testing::ElementsAre(1, 1, 2));
  EXPECT_THAT(of(40, 8, 5760, 64), testing::ElementsAre(2, 2, 4));
  EXPECT_THAT(of(10, 10, 8192, 128), testing::ElementsAre(4, 6));
  // Two for each slot, in two sections together: a larger one would only read more from memory.
  EXPECT_THAT(of(32, 8, 4096, 128), testing::ElementsAre(4, 4));
  EXPECT_THAT(of(32, 8, 8192, 64), testing::ElementsAre(2, 2, 2, 2));
  // So many sections that only the last ones are simulated; as if all were.
  EXPECT_EQ(of(64, 64, 8192, 128).back(), 4);
  EXPECT_EQ(of(50, 50, 8192, 128).back(), 6);
}

// The first blocks of keys of the longest requests take several times as long as the average.
TEST(BackwardSplit, EndsWithManyBlocksOfKeysIfRequestsDiffer) {
  const DeviceInfo device = hopper();
  const auto of = [&](int64_t kv_heads, const std::vector<int64_t>& lengths, Mask mask) {
    Problem p = problem(1, kv_heads, kv_heads, 1, 128, mask);
    p.layout = Layout::ragged;
    std::vector<RequestLengths> requests;
    for (const int64_t length : lengths) requests.push_back({length, length});
    p.set_lengths(std::make_shared<const Lengths>(requests));
    return heads_of_sections(launch(p, device), 1);
  };
  const std::vector<int64_t> equal(8, 2048),
      different{1024, 1024, 1024, 1024, 3072, 3072, 3072, 3072};
  std::vector<int64_t> many(64, 2048);
  many.front() = 4096;
  for (const Mask mask : kBothMasks) {
    // 128 blocks of keys a head: four heads have four for each slot but for a few.
    EXPECT_THAT(of(4, different, mask), testing::ElementsAre(4));
    EXPECT_THAT(of(8, different, mask), testing::ElementsAre(2, 6));
    EXPECT_THAT(of(4, many, mask), testing::ElementsAre(1, 1, 1, 1));
    EXPECT_THAT(of(8, equal, mask), testing::ElementsAre(2, 2, 2, 2));
  }
}

TEST(BackwardSplit, LeavesNoShortLastSectionIfThreadBlocksGoBackwards) {
  const DeviceInfo device = hopper();
  for (int64_t heads = 1; heads <= 40; ++heads) {
    const Problem p = problem(1, heads, heads, 8192, 128, Mask::causal_bottom_right);
    const Launch at{p, device, kSm90BackwardDeterministic.choose(p, device)};
    const Sections s = sections(at, 1, true);
    const int64_t in_last = heads - int64_t{s.last} * s.heads;
    const int64_t key_blocks = 8192 / at.blocks.kv;
    EXPECT_LE(in_last, s.heads) << heads;
    EXPECT_TRUE(in_last == s.heads || in_last * key_blocks >= 2 * device.threads) << heads;
  }
}

// Thread blocks of one head wait for each other: a delay of one delays all behind it.
TEST(BackwardSplit, RunsFewThreadBlocksOfAHeadAtOnceIfTheyGoBackwards) {
  const DeviceInfo device = hopper();
  constexpr int64_t kHeads = 32;
  for (const Mask mask : kBothMasks) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (int64_t length = 512; length <= 16384; length *= 2) {
        const Problem p = problem(1, kHeads, kHeads, length, head_dim, mask);
        const Launch at{p, device, kSm90BackwardDeterministic.choose(p, device)};
        const int64_t section = sections(at, 1, true).heads;
        const int64_t most_of_a_head = head_dim / (p.is_masked() ? 16 : 8);
        const int64_t heads = device.threads / at.blocks.cluster / most_of_a_head;
        EXPECT_TRUE(section == kHeads || section >= heads) << p.id();
      }
    }
  }
}

// A thread block that rotates waits for later ones, too: these must run.
TEST(BackwardSplit, RotatesWhatRunsAtOnce) {
  const DeviceInfo device = hopper();
  const auto rotate = [&](int64_t kv_heads, int64_t q_len, int64_t kv_len, Mask mask) {
    Problem p = problem(1, 32, kv_heads, q_len, 64, mask);
    p.kv_len = kv_len;
    return rotates({p, device, kSm90BackwardDeterministic.choose(p, device)}, 1);
  };
  EXPECT_TRUE(rotate(8, 2048, 2048, Mask::none));    // 128 thread blocks
  EXPECT_FALSE(rotate(16, 2048, 2048, Mask::none));  // 256
  EXPECT_FALSE(rotate(8, 2048, 2048, Mask::causal_bottom_right));
  EXPECT_TRUE(rotate(8, 2048, 1920, Mask::none));
  EXPECT_FALSE(rotate(8, 1920, 2048, Mask::none));  // two would begin with the same block
}

// Only without a mask, and where no other thread blocks add to the same dK and dV, is the last wave
// divided.
TEST(BackwardSplit, DividesTheLastWaveOfRequestsWithoutAMask) {
  const DeviceInfo device = hopper();
  const auto at_once = [&](Problem p, const MainKernel& kernel, const KeySums* sums = nullptr) {
    std::vector<RequestLengths> requests(8, {1024, 1024});
    requests.front() = {3072, 3072};
    p.layout = Layout::ragged;
    p.set_lengths(std::make_shared<const Lengths>(requests));
    Launch at = launch(p, device);
    at.key_sums = sums;
    const Arguments args = arguments(at, {}, {}, nullptr, kernel);
    EXPECT_EQ(args.whole_items, args.work_items);
    EXPECT_EQ(args.work_items, args.kv_heads * args.parts * args.key_blocks + args.at_once);
    return args.at_once;
  };
  const Problem unmasked = problem(1, 16, 16, 1, 128, Mask::none);
  EXPECT_EQ(at_once(unmasked, kUnordered), 132);
  EXPECT_EQ(at_once(problem(1, 16, 16, 1, 256, Mask::none), kUnordered), 66);
  EXPECT_EQ(at_once(unmasked, kOrdered), 0);
  EXPECT_EQ(at_once(problem(1, 16, 16, 1, 128, Mask::causal_bottom_right), kUnordered), 0);
  Problem windowed = unmasked;
  windowed.window_left = 500;
  EXPECT_EQ(at_once(windowed, kUnordered), 0);
  float dk = 0, dv = 0;
  const KeySums sums{&dk, &dv, 16384};
  EXPECT_EQ(at_once(unmasked, kUnordered, &sums), 0);
}

// The same at equal lengths: the blocks of keys of the last wave and their pieces.
TEST(BackwardSplit, DividesTheLastWaveWithoutAMask) {
  const DeviceInfo device = hopper();
  const auto split = [&](const Problem& p, const MainKernel& kernel = kUnordered,
                         const KeySums* sums = nullptr) {
    Launch at = launch(p, device);
    at.key_sums = sums;
    const Arguments args = arguments(at, {}, {}, nullptr, kernel);
    const int64_t all = p.batch * p.kv_heads * args.parts * args.key_blocks;
    const int pieces = args.work_items - args.whole_items;
    EXPECT_EQ(args.at_once, 0);
    EXPECT_EQ(pieces % args.pieces, 0) << p.id();
    EXPECT_EQ(args.whole_items + pieces / args.pieces, all) << p.id();
    EXPECT_LE(pieces, kMostPiecesAtOnce * slots(at)) << p.id();
    return std::pair(pieces / args.pieces, args.pieces);
  };
  using Split = std::pair<int, int>;
  const auto unmasked = [](int64_t batch, int64_t heads, int64_t length, int64_t head_dim) {
    return problem(batch, heads, heads, length, head_dim, Mask::none);
  };
  EXPECT_EQ(split(unmasked(1, 32, 16384, 64)), Split(4, 4));  // 4,096 blocks of keys in 31.03 waves
  EXPECT_EQ(split(unmasked(1, 16, 16384, 128)), Split(68, 3));  // 15.5 waves, the last in two
  EXPECT_EQ(split(unmasked(1, 12, 2000, 128)), Split(60, 2));
  EXPECT_EQ(split(unmasked(1, 12, 2000, 192)), Split(36, 3));
  EXPECT_EQ(split(unmasked(1, 8, 5000, 256)), Split(0, 1));   // 56 pairs of 66
  EXPECT_EQ(split(unmasked(33, 16, 512, 128)), Split(0, 1));  // 16 waves
  EXPECT_EQ(split(unmasked(67, 2, 320, 128)), Split(0, 1));   // 5 steps
  const Problem p = unmasked(1, 32, 16384, 64);
  EXPECT_EQ(split(p, kOrdered), Split(0, 1));
  EXPECT_EQ(split(problem(1, 32, 32, 16384, 64, Mask::causal_bottom_right)), Split(0, 1));
  float dk = 0, dv = 0;
  const KeySums sums{&dk, &dv, 16384};
  EXPECT_EQ(split(p, kUnordered, &sums), Split(0, 1));
  EXPECT_THAT(kSm90Backward.variant(launch(p, device)),
              testing::HasSubstr("4 blocks of keys in 4 pieces"));
  EXPECT_THAT(kSm90BackwardDeterministic.variant(launch(p, device)),
              testing::Not(testing::HasSubstr("pieces")));
}

// Pieces of the last wave make more parts of all blocks of keys unnecessary, if the last wave has
// few blocks of many steps.
TEST(BackwardSplit, PrefersPiecesOfTheLastWaveToPartsOfAll) {
  Problem p = problem(1, 67, 67, 1024, 128, Mask::none);  // 536 blocks of keys: 4.06 waves
  p.q_len = 16384;
  const Launch at = launch(p, hopper());
  EXPECT_GT(choose_parts(at, kOrdered), 1);
  EXPECT_EQ(choose_parts(at, kUnordered), 1);
  // Four pieces for each are too few to fill a GPU.
  const Launch few = launch(problem(1, 32, 1, 2048, 128, Mask::none), hopper());
  EXPECT_EQ(choose_parts(few, kUnordered), choose_parts(few, kOrdered));
}

// If keys are shared, the accumulators of dK and dV take memory in proportion to the length; a
// slice for each part if the sums are ordered.
TEST(BackwardSplit, TakesMemoryInProportionToTheLength) {
  const DeviceInfo device = hopper();
  const Problem shared = problem(1, 32, 1, 2048, 128, Mask::none);
  const Launch at = launch(shared, device);
  const auto parts = static_cast<size_t>(choose_parts(at, kUnordered));
  const size_t slice = 2 * 2048 * 128 * sizeof(float);
  const size_t dq = 32 * 2048 * 128 * sizeof(float);
  const size_t any_order = kSm90Backward.workspace_bytes(at);
  EXPECT_GE(any_order, dq + slice);
  EXPECT_LE(any_order, dq + slice + dq / 32);
  EXPECT_EQ(kSm90BackwardDeterministic.workspace_bytes(at), any_order + (parts - 1) * slice);
  EXPECT_THAT(kSm90Backward.variant(at), testing::HasSubstr(std::to_string(parts) + " parts"));
}

// Whether parts share keys or not.
TEST(BackwardSplit, AddsToTheSumsOfItsCaller) {
  const DeviceInfo device = hopper();
  float dk = 0, dv = 0;
  const KeySums sums{&dk, &dv, 4096};
  for (const int64_t kv_heads : {1, 32}) {
    const Problem p = problem(1, 32, kv_heads, 2000, 128, Mask::causal_bottom_right);
    Launch at = launch(p, device);
    EXPECT_EQ(arguments(at, {}, {}, nullptr, kUnordered).adds_keys, kv_heads == 1);
    at.key_sums = &sums;
    const Arguments args = arguments(at, {}, {}, nullptr, kUnordered);
    EXPECT_TRUE(args.adds_keys);
    EXPECT_EQ(args.dk_sums, &dk);
    EXPECT_EQ(args.dv_sums, &dv);
    EXPECT_EQ(args.padded_kv, 4096);
    EXPECT_EQ(args.slices, 0);
    EXPECT_EQ(args.zeros, 0);
  }
}

}  // namespace
}  // namespace backward
}  // namespace flashbench::kernels
