// The decoding kernels for Hopper: against the fp64 oracle at every number of keys, in pages, with
// lengths of the requests' own, launched repeatedly, and with their warps delayed at random.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "attention/half.h"
#include "device/cuda.h"
#include "kernels/sm90/cluster_launch.h"
#include "kernels/sm90/decode.cuh"
#include "kernels/sm90/decode_splits.h"
#include "tests/kernels/captured_launch.h"
#include "tests/kernels/cuda_problem.h"
#include "tests/kernels/launches_beside_work.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/random_delay.cuh"
#include "verify/oracle.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Decode, kSm90DecodeBatchInvariant;

namespace sm90 {
namespace {

template <typename Values>
auto in_turn(const Values& values, int64_t turn) {
  return values[static_cast<size_t>(turn) % values.size()];
}

// Each property has its own period, so that its values meet most values of the others.
Problem problem_with(int64_t kv_len) {
  constexpr std::array<int64_t, 6> kGroups{1, 3, 5, 7, 8, 16};
  constexpr std::array<int64_t, 7> kHeadDims{64, 128, 96, 256, 192, 72, 24};
  constexpr std::array<int64_t, 3> kValueDims{128, 40, 72};
  constexpr std::array kMaskOrder{Mask::none, Mask::causal_bottom_right, Mask::causal_bottom_right,
                                  Mask::causal_top_left, Mask::causal_bottom_right};
  Problem p;
  p.dtype = kv_len / 3 % 2 == 0 ? Dtype::bf16 : Dtype::fp16;
  p.mask = in_turn(kMaskOrder, kv_len);
  p.layout = in_turn(kDenseLayouts, kv_len / 2);
  p.batch = 1 + kv_len % 3;
  p.kv_heads = 1 + kv_len / 3 % 2;
  p.q_heads = p.kv_heads * in_turn(kGroups, kv_len / 2);
  p.q_len = std::min<int64_t>(1 + kv_len * 5 % 16, 64 / p.heads_per_kv_head());
  p.kv_len = kv_len;
  p.head_dim = in_turn(kHeadDims, kv_len);
  if (kv_len % 11 == 4) p.set_value_dim(in_turn(kValueDims, kv_len / 11));
  if (kv_len % 13 == 5) p.window_left = kv_len * 7 % 150;
  if (kv_len % 17 == 6 && p.mask == Mask::none) p.window_right = kv_len % 10;
  return p;
}

constexpr std::array<int64_t, 10> kPageSizes{1, 8, 16, 32, 48, 64, 128, 256, 7, 1000};

Problem paged(Problem p, int64_t turn) {
  p.page_size = in_turn(kPageSizes, turn);
  p.kv_layout = in_turn(kKvLayouts, turn / 3);
  return p;
}

// Up to seven requests with up to kv_len keys, some of them without queries or keys.
Problem with_lengths(Problem p, int64_t kv_len) {
  std::vector<RequestLengths> lengths;
  const int64_t most_queries = std::min<int64_t>(16, 64 / p.heads_per_kv_head());
  for (int64_t b = 0; b < 1 + kv_len % 7; ++b) {
    const int64_t turn = kv_len * 3 + b * 5;
    const std::array<int64_t, 6> keys{kv_len, 0, kv_len / 2, 1, std::min<int64_t>(kv_len, 65), 7};
    const std::array<int64_t, 5> queries{1, most_queries, 0, 3, 2};
    lengths.push_back({std::min(in_turn(queries, turn), most_queries), in_turn(keys, b + kv_len)});
  }
  lengths.push_back({1, kv_len});
  p.set_lengths(std::make_shared<Lengths>(lengths));
  p.layout = in_turn(kLayouts, kv_len);
  return p;
}

// The same from a cache of bytes, whose rows are multiples of 16 of them.
Problem with_byte_cache(Problem p) {
  const auto rounded_up = [](int64_t dim) { return (dim + 15) / 16 * 16; };
  const int64_t value_dim = rounded_up(p.value_dim());
  p.head_dim = rounded_up(p.head_dim);
  p.set_value_dim(value_dim);
  p.kv_dtype = Dtype::e4m3;
  p.descale = p.kv_len % 5 == 3 ? Descale::per_tensor : Descale::per_head;
  return p;
}

// Other numbers of multiprocessors than the GPU has make other splits.
DeviceInfo told(const DeviceInfo& info, int64_t turn) {
  constexpr std::array kMultiprocessors{132, 1, 40, 1000};
  DeviceInfo other = info;
  other.threads = in_turn(kMultiprocessors, turn);
  return other;
}

std::string why_skipped() {
  if (const auto why = why_no_cuda()) return *why;
  const auto why = kSm90Decode.why_unsupported(problem_with(1), make_cuda_device(0)->info());
  return why.value_or("");
}

void expect_right(const Oracle& oracle, CudaProblem& one) {
  EXPECT_EQ(one.outputs().damage(), "");
  HostOutputs host = one.outputs().to_host();
  const Verdict verdict = oracle.judge(host.view());
  EXPECT_TRUE(verdict.passed()) << verdict.reason;
}
void expect_right(Device& device, CudaProblem& one, const Problem& p) {
  expect_right(Oracle(p, one.host_inputs(), Dtype::fp32, {}, device), one);
}

// Runs both kernels, told of another device in turn.
void expect_both_right(Device& device, const Problem& p, int64_t turn) {
  ASSERT_EQ(p.invalid(), std::nullopt);
  const DeviceInfo info = told(device.info(), turn);
  std::optional<Oracle> oracle;
  for (const AttentionKernel* kernel : {&kSm90Decode, &kSm90DecodeBatchInvariant}) {
    ASSERT_EQ(kernel->why_unsupported(p, info), std::nullopt) << p.id();
    const BlockSizes blocks = kernel->choose(p, info);
    SCOPED_TRACE(p.id() + " " + kernel->variant({p, info, blocks}));
    CudaProblem one(device, *kernel, p, blocks, info);
    one.outputs().poison();
    one.launch();
    finish_or_exit({device.stream()}, 10, p.id());
    if (!oracle) oracle.emplace(p, one.host_inputs(), Dtype::fp32, OracleBudget{}, device);
    expect_right(*oracle, one);
  }
}

// Hundreds of keys, beginning with this number.
class CudaSm90Decode : public testing::TestWithParam<int> {
 protected:
  template <typename Make>
  void expect_right_for_every_number_of_keys(const Make& make) {
    if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
    const std::unique_ptr<Device> device = make_cuda_device(0);
    for (int64_t kv_len = GetParam(); kv_len < GetParam() + 100; ++kv_len) {
      expect_both_right(*device, make(kv_len), kv_len);
    }
  }
};

TEST_P(CudaSm90Decode, IsRightForEveryNumberOfKeys) {
  expect_right_for_every_number_of_keys(problem_with);
}
TEST_P(CudaSm90Decode, IsRightInPages) {
  expect_right_for_every_number_of_keys(
      [](int64_t kv_len) { return paged(problem_with(kv_len), kv_len); });
}
TEST_P(CudaSm90Decode, IsRightForRequestsOfDifferentLengths) {
  expect_right_for_every_number_of_keys(
      [](int64_t kv_len) { return with_lengths(problem_with(kv_len), kv_len); });
}
TEST_P(CudaSm90Decode, IsRightForRequestsOfDifferentLengthsInPages) {
  expect_right_for_every_number_of_keys(
      [](int64_t kv_len) { return paged(with_lengths(problem_with(kv_len), kv_len), kv_len); });
}
// Without pages and in pages, of equal and of different lengths.
TEST_P(CudaSm90Decode, IsRightFromACacheOfBytes) {
  expect_right_for_every_number_of_keys([](int64_t kv_len) {
    Problem p = problem_with(kv_len);
    if (kv_len / 2 % 2 == 1) p = with_lengths(p, kv_len);
    if (kv_len % 2 == 1) p = paged(p, kv_len / 2);
    return with_byte_cache(p);
  });
}

// O in fp32 is what O in 16 bits has been rounded from.
TEST_P(CudaSm90Decode, GivesAnOInFp32ThatRoundsToThatOf16Bits) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  for (int64_t kv_len = GetParam(); kv_len < GetParam() + 100; ++kv_len) {
    const Problem p = problem_with(kv_len);
    const DeviceInfo info = told(device->info(), kv_len);
    CudaProblem one(*device, kSm90Decode, p, kSm90Decode.choose(p, info), info);
    DeviceOutputs fp32(*device, p, Placement::contiguous, true, OutputFormat{Dtype::fp32});
    one.launch();
    one.launch_to_fp32_o(fp32);
    finish_or_exit({device->stream()}, 10, p.id());
    EXPECT_EQ(fp32.damage(), "") << p.id();
    HostOutputs of_16_bits = one.outputs().to_host(), of_fp32 = fp32.to_host();
    const Outputs expected = of_16_bits.view(), found = of_fp32.view();
    const auto elements = static_cast<size_t>(p.output_elements());
    std::vector<std::byte> rounded(elements * 2);
    for (size_t i = 0; i < elements; ++i) {
      store_element(rounded.data(), p.dtype, static_cast<int64_t>(i),
                    static_cast<const float*>(found.o.data)[i]);
    }
    EXPECT_EQ(std::memcmp(rounded.data(), expected.o.data, rounded.size()), 0) << p.id();
    const auto rows = static_cast<size_t>(p.query_rows());
    EXPECT_EQ(std::memcmp(found.logsumexp, expected.logsumexp, rows * sizeof(float)), 0) << p.id();
  }
}

INSTANTIATE_TEST_SUITE_P(Keys, CudaSm90Decode, testing::Range(1, 1101, 100),
                         testing::PrintToStringParamName());

// Problem p in a batch of requests with these lengths, each of one query.
Problem with_keys(Problem p, const std::vector<int64_t>& keys, Layout layout = Layout::ragged) {
  std::vector<RequestLengths> lengths;
  for (const int64_t count : keys) lengths.push_back({p.q_len, count});
  p.set_lengths(std::make_shared<Lengths>(lengths));
  p.layout = layout;
  return p;
}

uint64_t hash_of_run(Device& device, const AttentionKernel& kernel, const Problem& p) {
  CudaProblem one(device, kernel, p);
  one.launch();
  finish_or_exit({device.stream()}, 10, p.id());
  return one.outputs().hash();
}

// More requests than lanes, and than lanes can add up in one step each; all of the keys in the
// first, the last or one between.
TEST(CudaSm90DecodeLengths, AreFoundInBatchesOfAnySize) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const Problem p = grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 2, 1, 1, 64);
  for (const size_t batch : {1, 2, 31, 32, 33, 63, 991, 993, 1024, 1025, 4096}) {
    for (const size_t longest : {size_t{0}, batch / 2, batch - 1}) {
      std::vector<int64_t> keys(batch);
      for (size_t b = 0; b < batch; ++b) keys[b] = static_cast<int64_t>(b * 7 % 40);
      keys[longest] = 5000;
      expect_both_right(*device, with_keys(p, keys), 0);
    }
  }
}

// Pages are but another place for the same keys.
TEST(CudaSm90DecodePages, ChangeNoBit) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const Problem equal = grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 2, 4, 3001, 128);
  const Problem of_lengths = with_keys(equal, {0, 1500, 3001, 2});
  for (const Problem& p :
       {equal, of_lengths, with_byte_cache(equal), with_byte_cache(of_lengths)}) {
    const uint64_t without = hash_of_run(*device, kSm90Decode, p);
    for (const int64_t page_size : kPageSizes) {
      for (const PageOrder order : kPageOrders) {
        Problem in_pages = paged(p, 0);
        in_pages.page_size = page_size;
        in_pages.page_order = order;
        EXPECT_EQ(hash_of_run(*device, kSm90Decode, in_pages), without) << in_pages.id();
      }
    }
  }
}

// The first request of a batch has the inputs that it has alone.
TEST(CudaSm90DecodeBatchInvariant, GivesARequestTheSameBitsInEveryBatch) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  for (const int64_t kv_len : {0, 1, 1000, 1024, 1025, 9000}) {
    for (const int64_t q_len : {1, 5}) {
      Problem p = grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 2, q_len, kv_len, 128);
      std::vector<std::vector<std::byte>> seen;
      for (const std::vector<int64_t>& others :
           {std::vector<int64_t>{}, {5}, {20000, 3}, std::vector<int64_t>(100, 300)}) {
        std::vector<int64_t> keys{kv_len};
        keys.insert(keys.end(), others.begin(), others.end());
        const Problem batch = with_keys(p, keys);
        CudaProblem one(*device, kSm90DecodeBatchInvariant, batch);
        one.launch();
        finish_or_exit({device->stream()}, 10, batch.id());
        HostOutputs host = one.outputs().to_host();
        const auto* o = static_cast<const std::byte*>(host.view().o.data);
        std::vector<std::byte> bits(o, o + q_len * p.q_heads * p.head_dim * 2);
        for (int64_t head = 0; head < p.q_heads; ++head) {
          const float* row = host.view().logsumexp + batch.query_index(0, head, 0);
          const auto* bytes = reinterpret_cast<const std::byte*>(row);
          bits.insert(bits.end(), bytes, bytes + q_len * 4);
        }
        seen.push_back(std::move(bits));
        EXPECT_EQ(seen.back(), seen.front()) << batch.id();
      }
    }
  }
}

// A launch leaves the counters so that the next may have other lengths: as a captured graph does,
// with its workspace and lengths in place.
TEST(CudaSm90DecodeLengths, MayChangeBetweenLaunches) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const Problem p = grouped_problem(Dtype::bf16, Mask::none, 2, 1, 1, 128);
  // In the layout bhsd of 20,000 rows, whatever the lengths.
  const std::vector<std::vector<int64_t>> batches{{20000, 10}, {20000, 20000}, {0, 20000},
                                                  {20000, 0},  {20000, 3000},  {20000, 10}};
  std::deque<CudaProblem> all;
  std::vector<uint64_t> alone;
  for (const auto& keys : batches) {
    all.emplace_back(*device, kSm90Decode, with_keys(p, keys, Layout::bhsd));
    all.back().launch();
    finish_or_exit({device->stream()}, 10, "alone");
    alone.push_back(all.back().outputs().hash());
  }
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].outputs().poison();
      all[i].launch_in(all.front());
      finish_or_exit({device->stream()}, 10, "in the workspace of the first");
      EXPECT_EQ(all[i].outputs().hash(), alone[i]) << i;
    }
  }
}

// Problems of one, several and no clusters, in pages and in portions.
const std::vector<Problem> kProblems{
    grouped_problem(Dtype::bf16, Mask::none, 1, 1, 20000, 128),
    grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 2, 4, 300, 64),
    grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 1, 10, 5000, 256),
    grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 8, 7, 2049, 128),
    grouped_problem(Dtype::bf16, Mask::none, 70, 2, 777, 96),
    grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 1, 9, 5, 192),
    grouped_problem(Dtype::fp16, Mask::causal_top_left, 1, 5, 1000, 192),
    paged(grouped_problem(Dtype::bf16, Mask::none, 1, 1, 20000, 128), 2),
    paged(grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 2, 4, 700, 64), 4),
    with_keys(grouped_problem(Dtype::bf16, Mask::none, 1, 1, 1, 128), {40000, 1, 0, 64, 900}),
    paged(with_keys(grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 3, 6, 1, 96),
                    {10, 3000, 3000, 77}),
          1),
    with_byte_cache(grouped_problem(Dtype::bf16, Mask::none, 1, 1, 20000, 128)),
    with_byte_cache(
        paged(with_keys(grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 3, 6, 1, 96),
                        {10, 3000, 3000, 77}),
              1)),
};

TEST(CudaSm90DecodeLaunches, TenThousandBesideOtherWorkLeaveTheSameOutputs) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const DeviceInfo info = make_cuda_device(0)->info();
  const auto splits_by_memory = [&](const Problem& p) {
    return !p.lengths && choose_splits(p, info, kSm90Decode.choose(p, info)).clusters > 1;
  };
  EXPECT_TRUE(std::ranges::any_of(kProblems, splits_by_memory));
  expect_right_beside_other_work(kSm90Decode, kProblems);
}

// What waits for parts takes poison for a part that is not there yet.
TEST(CudaSm90DecodeLaunches, LeaveTheWorkspaceAsTheyFoundIt) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  for (const AttentionKernel* kernel : {&kSm90Decode, &kSm90DecodeBatchInvariant}) {
    for (const Problem& p : kProblems) {
      CudaProblem one(*device, *kernel, p);
      one.launch();
      finish_or_exit({device->stream()}, 10, p.id());
      EXPECT_TRUE(one.workspace_is_poisoned()) << kernel->name << " " << p.id();
    }
  }
}

// Inputs of the NaN that poison is: sums of them are another NaN.
TEST(CudaSm90DecodeLaunches, OfPoisonedInputsEnd) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  for (const AttentionKernel* kernel : {&kSm90Decode, &kSm90DecodeBatchInvariant}) {
    for (const Problem& p : kProblems) {
      if (p.is_paged()) continue;  // a poisoned table has no pages
      CudaProblem one(*device, *kernel, p);
      one.poison_inputs();
      one.launch();
      finish_or_exit({device->stream()}, 10, p.id());
      EXPECT_TRUE(one.workspace_is_poisoned()) << kernel->name << " " << p.id();
    }
  }
}

// ---- Delays

struct Delayed {
  BlockSizes blocks;
  CudaKernel<DecodeArguments> kernel;
};
template <typename T, DecodeConfig kConfig>
Delayed delayed() {
  using Kernel = Decode<T, kConfig, RandomDelay>;
  return {
      {.q = Kernel::kBlockQ,
       .kv = Kernel::kBlockKv,
       .warps = kConfig.warps,
       .stages = kConfig.stages},
      {"sm90_decode", decode_kernel<Kernel>, Kernel::kThreads, sizeof(typename Kernel::Shared)}};
}

struct Sample {
  Problem problem;
  Delayed kernel;
};

std::vector<Sample> samples() {
  const Delayed d128 = delayed<__nv_bfloat16, DecodeConfig{128, 128, 1, 16, 8, 2, 1}>();
  const Delayed d128_rows = delayed<__half, DecodeConfig{128, 128, 2, 16, 4, 2, 2}>();
  const Delayed d64 = delayed<__nv_bfloat16, DecodeConfig{64, 64, 1, 32, 4, 2, 2}>();
  const Delayed in_pages =
      delayed<__nv_bfloat16, DecodeConfig{128, 128, 1, 16, 8, 2, 1, DecodeBatch::paged}>();
  const Delayed in_portions =
      delayed<__half, DecodeConfig{128, 128, 2, 16, 8, 2, 1, DecodeBatch::portions}>();
  const Delayed ahead =
      delayed<__half, DecodeConfig{128, 128, 1, 16, 4, 2, 2, DecodeBatch::portions}>();
  const Delayed of_bytes =
      delayed<__nv_bfloat16, DecodeConfig{128, 128, 1, 32, 8, 2, 1, DecodeBatch::equal, true}>();
  const Delayed of_bytes_in_portions =
      delayed<__half, DecodeConfig{128, 128, 1, 32, 4, 2, 2, DecodeBatch::portions, true}>();
  const std::vector<int64_t> keys{300, 5000, 20, 0, 64};
  const Problem of_lengths =
      with_keys(grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 3, 10, 1, 128), keys);
  const Problem of_few_rows =
      with_keys(grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 3, 2, 1, 128), keys);
  return {{grouped_problem(Dtype::bf16, Mask::none, 1, 1, 20000, 128), d128},
          {grouped_problem(Dtype::bf16, Mask::causal_bottom_right, 4, 5, 4000, 128), d128},
          {grouped_problem(Dtype::fp16, Mask::causal_bottom_right, 1, 10, 3000, 128), d128_rows},
          {grouped_problem(Dtype::bf16, Mask::none, 3, 2, 900, 64), d64},
          {paged(grouped_problem(Dtype::bf16, Mask::none, 1, 1, 20000, 128), 2), in_pages},
          {of_lengths, in_portions},
          {paged(of_lengths, 1), in_portions},
          {paged(of_few_rows, 1), ahead},
          {with_byte_cache(grouped_problem(Dtype::bf16, Mask::none, 1, 1, 20000, 128)), of_bytes},
          {with_byte_cache(paged(of_few_rows, 1)), of_bytes_in_portions}};
}

class CudaSm90DecodeDelays : public testing::TestWithParam<int> {};

TEST_P(CudaSm90DecodeDelays, ChangeNoBit) {
  if (const std::string why = why_skipped(); !why.empty()) GTEST_SKIP() << why;
  const std::unique_ptr<Device> device = make_cuda_device(0);
  const auto [p, delayed] = samples()[static_cast<size_t>(GetParam())];
  const std::vector<KernelFacts> facts = kSm90Decode.facts({p, device->info(), delayed.blocks});
  ASSERT_EQ(facts[0].dynamic_shared_bytes, delayed.kernel.shared_bytes) << "no such variant";
  CudaProblem one(*device, kSm90Decode, p, delayed.blocks);
  const auto stream = static_cast<cudaStream_t>(device->stream().cuda);
  const auto captured = captured_launch<DecodeArguments>([&] { one.launch(); }, stream);
  const ClusterGrid grid{.x = captured.grid.x,
                         .y = captured.grid.y,
                         .z = captured.grid.z,
                         .cluster_size = captured.arguments.cluster_size};
  const auto hash_of_run = [&](unsigned warpgroups, unsigned run) {
    one.outputs().poison();
    hold_up(warpgroups, run, stream);
    launch_clusters(delayed.kernel, grid, captured.arguments, device->stream());
    finish_or_exit({device->stream()}, 10, p.id() + " in run " + std::to_string(run));
    return one.outputs().hash();
  };
  const uint64_t undelayed = hash_of_run(0, 0);
  expect_right(*device, one, p);
  for (unsigned run = 1; run <= 100; ++run) {
    ASSERT_EQ(hash_of_run(run % 4, run), undelayed) << "run " << run;
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaSm90DecodeDelays,
                         testing::Range(0, static_cast<int>(samples().size())),
                         [](const auto& info) {
                           const auto& sample = samples()[static_cast<size_t>(info.param)];
                           return test_name(sample.problem) + "_" + std::to_string(info.param);
                         });

}  // namespace
}  // namespace sm90
}  // namespace flashbench::kernels
