// Plants the defects of published implementations over several devices in ours: in the copies, in
// the merging, in the kernel's blocks and in the division of the tokens. Each ends as "failed".
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention/half.h"
#include "case/case_run.h"
#include "kernels/attention.h"
#include "providers/split/algorithm.h"
#include "tests/providers/split/wrapped_group.h"

namespace flashbench {
namespace {

using kernels::AttentionKernel;
using kernels::Launch;

const AttentionKernel& kernel_of(Pass pass) {
  for (const AttentionKernel* kernel : kernels::all_kernels()) {
    if (kernel->device == DeviceKind::cpu && kernel->pass == pass) return *kernel;
  }
  throw std::logic_error("no kernel");
}

const SplitKind& kind_of(std::string_view name) {
  for (const SplitKind& kind : kSplitKinds) {
    if (kind.name == name) return kind;
  }
  throw std::logic_error("no such split");
}

using WrapGroup = std::unique_ptr<DeviceGroup> (*)(std::unique_ptr<DeviceGroup>);

// A provider whose parts have a defect.
struct SplitMutant final : Provider {
  SplitMutant(std::string_view name, std::function<void(SplitParts&, const Problem&)> plant,
              WrapGroup wrap_group = nullptr)
      : kind(kind_of(name)), change(std::move(plant)), wrap(wrap_group) {}

  std::string_view name() const override { return "mutant"; }
  std::string_view description() const override { return "a mutant"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  std::vector<std::string_view> optional_axes() const override { return {"gpus", "split"}; }
  std::optional<std::string> why_unsupported(const Problem&, const DeviceInfo&) const override {
    return std::nullopt;
  }
  int64_t workspace_bytes(const Problem&, const DeviceInfo&) const override { return 0; }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    SplitParts parts{.kernel = &kernel_of(p.pass), .tokens = TokenSplit::of(p)};
    if (change) change(parts, p);
    auto group = make_group(device, static_cast<int>(*p.gpus));
    return make_split_session(kind, parts, p, wrap ? wrap(std::move(group)) : std::move(group));
  }

  const SplitKind& kind;
  std::function<void(SplitParts&, const Problem&)> change;
  WrapGroup wrap;
};

class SplitMutants : public testing::TestWithParam<std::tuple<Pass, Dtype>> {
 protected:
  SplitMutants() {
    Problem& p = item_.problem;
    p.pass = std::get<0>(GetParam());
    p.dtype = std::get<1>(GetParam());
    p.mask = Mask::causal_bottom_right;
    p.q_heads = p.kv_heads = 4;
    p.q_len = p.kv_len = 128;
    p.head_dim = 32;
    p.gpus = 4;
    options_.time = false;
  }

  bool backward() const { return item_.problem.pass == Pass::backward; }

  std::string status(const Provider& provider) {
    const Record record = run_case(item_, {&provider}, *device_, nullptr, options_).at(0);
    reason_ = record.reason;
    return std::string(name(record.status));
  }

  // Few queries over keys of which each device has a part.
  void decode() {
    item_.problem.split = Split::keys;
    item_.problem.q_len = 4;
  }

  // Of every split that has the pass.
  template <typename... Defect>
  void expect(const char* expected, const std::vector<const char*>& kinds, Defect... defect) {
    for (const char* kind : kinds) {
      if (backward() && !kind_of(kind).backward) continue;
      EXPECT_EQ(status(SplitMutant(kind, defect...)), expected)
          << kind << " " << item_.key() << " " << reason_;
    }
  }

  const std::vector<const char*> all_{"tiled:gather", "tiled:ulysses", "tiled:ring", "tiled:gated"};
  std::unique_ptr<Device> device_ = make_host_device(4);
  CaseRunOptions options_;
  Case item_;
  std::string reason_;
};

INSTANTIATE_TEST_SUITE_P(All, SplitMutants,
                         testing::Combine(testing::ValuesIn(kPasses),
                                          testing::ValuesIn(kUnscaledDtypes)),
                         [](const auto& instance) {
                           return std::string(name(std::get<0>(instance.param))) + "_" +
                                  std::string(name(std::get<1>(instance.param)));
                         });

TEST_P(SplitMutants, WithoutADefectPass) {
  for (const int64_t length : {128, 61, 5}) {
    item_.problem.q_len = item_.problem.kv_len = length;
    expect("ok", all_, nullptr);
  }
}

TEST_P(SplitMutants, WithoutADefectDecodingPasses) {
  if (backward()) return;  // forward
  decode();
  for (const int64_t length : {128, 61, 3}) {
    item_.problem.kv_len = length;
    expect("ok", {"tiled:dcp"}, nullptr);
  }
}

// The copy of a later step does not arrive: the buffer has the keys of two steps ago.
TEST_P(SplitMutants, AStaleBuffer) {
  struct Stale final : WrappedGroup {
    using WrappedGroup::WrappedGroup;
    int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
      if (rank == 2 && from == 1) copies.clear();
      return WrappedGroup::pull(rank, from, std::move(copies), mark);
    }
  };
  const WrapGroup stale = [](std::unique_ptr<DeviceGroup> group) -> std::unique_ptr<DeviceGroup> {
    return std::make_unique<Stale>(std::move(group));
  };
  expect("failed", all_, nullptr, stale);
}

// Kernels that wait for nothing: copies arrive when all have ended.
TEST_P(SplitMutants, KernelsThatDoNotWait) {
  struct Late final : WrappedGroup {
    using WrappedGroup::WrappedGroup;
    int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
      {
        const std::lock_guard lock(mutex);
        for (const RowCopy& copy : copies) late.push_back(copy);
      }
      return WrappedGroup::pull(rank, from, {}, mark);
    }
    void run(const std::function<void(int)>& body) override {
      WrappedGroup::run(body);
      WrappedGroup::run([this](int rank) {
        if (rank == 0) WrappedGroup::pull(0, 0, std::move(late), kNoMark);
      });
    }
    std::mutex mutex;
    std::vector<RowCopy> late;
  };
  const WrapGroup late = [](std::unique_ptr<DeviceGroup> group) -> std::unique_ptr<DeviceGroup> {
    return std::make_unique<Late>(std::move(group));
  };
  expect("failed", all_, nullptr, late);
}

// Ranks that merge without waiting for the results of rank 1: it computes when they have ended.
TEST_P(SplitMutants, MergesThatDoNotWait) {
  if (backward()) return;  // forward
  struct NoBarrier final : WrappedGroup {
    using WrappedGroup::WrappedGroup;
    Stream stream(int rank) override {
      while (rank == 1 && ended < ranks() - 1) std::this_thread::yield();
      return WrappedGroup::stream(rank);
    }
    void barrier(int) override {}
    void run(const std::function<void(int)>& body) override {
      ended = 0;
      WrappedGroup::run([&](int rank) {
        body(rank);
        ++ended;
      });
    }
    std::atomic<int> ended{0};
  };
  const WrapGroup no_barrier =
      [](std::unique_ptr<DeviceGroup> group) -> std::unique_ptr<DeviceGroup> {
    return std::make_unique<NoBarrier>(std::move(group));
  };
  decode();
  expect("failed", {"tiled:dcp"}, nullptr, no_barrier);
}

// Gradients that go home before their tiles are done.
TEST_P(SplitMutants, GradientsThatLeaveTooSoon) {
  if (!backward()) return;  // of the backward pass
  struct TooSoon final : WrappedGroup {
    using WrappedGroup::WrappedGroup;
    // No kernel begins before all ranks have pulled.
    Stream stream(int rank) override {
      if (!std::exchange(begun[static_cast<size_t>(rank)], true)) WrappedGroup::barrier(rank);
      return WrappedGroup::stream(rank);
    }
    int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
      const int64_t pulled = WrappedGroup::pull(rank, from, std::move(copies), kNoMark);
      if (mark != kNoMark) WrappedGroup::wait(rank, pulled);
      return pulled;
    }
    void run(const std::function<void(int)>& body) override {
      begun.fill(false);
      WrappedGroup::run(body);
    }
    std::array<bool, 4> begun{};
  };
  const WrapGroup soon = [](std::unique_ptr<DeviceGroup> group) -> std::unique_ptr<DeviceGroup> {
    return std::make_unique<TooSoon>(std::move(group));
  };
  expect("failed", {"tiled:gated"}, nullptr, soon);
}

// What one rank adds to the gradients of others is left out.
TEST_P(SplitMutants, GradientsOfOneRankLeftOut) {
  if (!backward()) return;  // of the backward pass
  struct LeftOut final : WrappedGroup {
    using WrappedGroup::WrappedGroup;
    // Gradients come with a mark, or behind a barrier.
    int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
      if ((mark != kNoMark || waited[static_cast<size_t>(rank)]) && from == 3 && rank != 3) {
        for (RowCopy& copy : copies) copy.from = zeros.data();
      }
      return WrappedGroup::pull(rank, from, std::move(copies), mark);
    }
    void barrier(int rank) override {
      waited[static_cast<size_t>(rank)] = true;
      WrappedGroup::barrier(rank);
    }
    void run(const std::function<void(int)>& body) override {
      waited.fill(false);
      WrappedGroup::run(body);
    }
    std::array<bool, 4> waited{};
    std::vector<float> zeros = std::vector<float>(size_t{1} << 16);
  };
  const WrapGroup left_out =
      [](std::unique_ptr<DeviceGroup> group) -> std::unique_ptr<DeviceGroup> {
    return std::make_unique<LeftOut>(std::move(group));
  };
  expect("failed", {"tiled:gather", "tiled:ring", "tiled:gated"}, nullptr, left_out);
}

// Each copy has the rows of the tensor's next head in place of its own.
TEST_P(SplitMutants, AnotherHeadsRows) {
  struct Shifted final : WrappedGroup {
    using WrappedGroup::WrappedGroup;
    int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
      for (size_t i = 0; rank != from && i + 1 < copies.size(); i += 2) {
        std::swap(copies[i].from, copies[i + 1].from);
        std::swap(copies[i].from_pitch, copies[i + 1].from_pitch);
      }
      return WrappedGroup::pull(rank, from, std::move(copies), mark);
    }
  };
  item_.problem.q_heads = item_.problem.kv_heads = 8;  // two for each rank
  const WrapGroup shifted = [](std::unique_ptr<DeviceGroup> group) -> std::unique_ptr<DeviceGroup> {
    return std::make_unique<Shifted>(std::move(group));
  };
  expect("failed", all_, nullptr, shifted);
}

// Two ranks get each other's copies: where the chunks are as long, nothing but the values is wrong.
TEST_P(SplitMutants, RanksSwapped) {
  struct Swapped final : WrappedGroup {
    using WrappedGroup::WrappedGroup;
    int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
      std::lock_guard lock(mutex);
      if (rank == 3 && from != 3) {  // takes the sources of its pull before
        for (size_t i = 0; i < std::min(copies.size(), before.size()); ++i) {
          std::swap(copies[i].from, before[i].from);
        }
        if (before.empty()) before = copies;
      }
      return WrappedGroup::pull(rank, from, std::move(copies), mark);
    }
    std::mutex mutex;
    std::vector<RowCopy> before;
  };
  const WrapGroup swapped = [](std::unique_ptr<DeviceGroup> group) -> std::unique_ptr<DeviceGroup> {
    return std::make_unique<Swapped>(std::move(group));
  };
  expect("failed", {"tiled:gather", "tiled:ring", "tiled:gated"}, nullptr, swapped);
}

// Each part but a row's first is merged with the O of the part before.
TEST_P(SplitMutants, OOfOneRankWithTheLogsumexpOfAnother) {
  if (backward()) return;  // forward
  decode();
  expect("failed", {"tiled:dcp"}, [](SplitParts& parts, const Problem&) {
    parts.merge = [](const PartialRow& sum, const PartialRow& part, int64_t columns) {
      thread_local float* before = nullptr;
      const bool first = *sum.logsumexp == -INFINITY;
      merge_rows(sum, {first ? part.o : before, part.logsumexp}, columns);
      before = part.o;
    };
  });
}

// A kernel that does this instead for some blocks.
template <Pass pass>
void launch_dropped(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                    Stream stream) {
  const Problem& p = at.problem;
  kernel_of(pass).launch(at, in, out, workspace, stream);
  if (p.mask != Mask::none) return;  // the own keys
  if (pass == Pass::forward) {
    std::fill_n(out.logsumexp, p.query_rows(), -INFINITY);
  } else {
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.q_heads; ++h) {
        for (int64_t row = 0; row < p.q_len; ++row) {
          std::fill_n(static_cast<float*>(out.dq.data) + out.dq.offset(b, h, row), p.head_dim, 0);
        }
      }
    }
  }
}

// One in six of the ring's blocks besides the diagonal: those of one rank's first chunk.
TEST_P(SplitMutants, OneStepDropped) {
  static AttentionKernel dropped[2];
  dropped[0] = kernel_of(Pass::forward);
  dropped[0].launch = [](const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                         Stream stream) {
    const bool first = at.problem.q_len == at.problem.kv_len && at.problem.mask == Mask::none;
    static std::atomic<int> count{0};
    if (first && count++ % 6 == 5) {
      launch_dropped<Pass::forward>(at, in, out, workspace, stream);
    } else {
      kernel_of(Pass::forward).launch(at, in, out, workspace, stream);
    }
  };
  dropped[1] = kernel_of(Pass::backward);
  dropped[1].launch = [](const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                         Stream stream) {
    static std::atomic<int> count{0};
    if (at.problem.mask == Mask::none && count++ % 6 == 5) {
      launch_dropped<Pass::backward>(at, in, out, workspace, stream);
    } else {
      kernel_of(Pass::backward).launch(at, in, out, workspace, stream);
    }
  };
  const bool pass = backward();
  expect("failed", {"tiled:ring"},
         [pass](SplitParts& parts, const Problem&) { parts.kernel = &dropped[pass ? 1 : 0]; });
}

// The part that has the queries' own keys does not count.
TEST_P(SplitMutants, OnePartDroppedWhileDecoding) {
  if (backward()) return;  // forward
  static AttentionKernel dropped = kernel_of(Pass::forward);
  dropped.launch = [](const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                      Stream stream) {
    kernel_of(Pass::forward).launch(at, in, out, workspace, stream);
    if (at.problem.mask == Mask::none) return;
    std::fill_n(out.logsumexp, at.problem.query_rows(), -INFINITY);
  };
  decode();
  expect("failed", {"tiled:dcp"},
         [](SplitParts& parts, const Problem&) { parts.kernel = &dropped; });
}

// A kernel that gives the logsumexp in base 2, as some libraries do.
TEST_P(SplitMutants, ALogsumexpInBase2) {
  if (backward()) return;  // forward
  static AttentionKernel base_2 = kernel_of(Pass::forward);
  base_2.launch = [](const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                     Stream stream) {
    kernel_of(Pass::forward).launch(at, in, out, workspace, stream);
    for (int64_t row = 0; row < at.problem.query_rows(); ++row) {
      out.logsumexp[row] *= std::numbers::log2e_v<float>;
    }
  };
  const auto plant = [](SplitParts& parts, const Problem&) { parts.kernel = &base_2; };
  expect("failed", {"tiled:ring"}, plant);
  // The logsumexp is wrong in any case. O is so too, because the weights of the parts are.
  EXPECT_TRUE(reason_.starts_with("o is off by")) << reason_;
  decode();
  expect("failed", {"tiled:dcp"}, plant);
  EXPECT_TRUE(reason_.starts_with("o is off by")) << reason_;
}

// The merge reads the logsumexp of the step before, as if it did not wait for the kernel.
TEST_P(SplitMutants, TheLogsumexpOfTheStepBefore) {
  if (backward()) return;  // forward
  static AttentionKernel late = kernel_of(Pass::forward);
  static std::map<const float*, std::vector<float>> before;
  static std::mutex mutex;
  late.launch = [](const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                   Stream stream) {
    kernel_of(Pass::forward).launch(at, in, out, workspace, stream);
    std::vector<float> own(out.logsumexp, out.logsumexp + at.problem.query_rows());
    const std::lock_guard lock(mutex);
    const auto [found, first] = before.try_emplace(out.logsumexp, own);
    if (first || found->second.size() != own.size()) return;
    std::ranges::copy(found->second, out.logsumexp);
    found->second = std::move(own);
  };
  expect("failed", {"tiled:ring"}, [](SplitParts& parts, const Problem&) {
    before.clear();
    parts.kernel = &late;
  });
}

// The block's own logsumexp in place of that over all keys.
TEST_P(SplitMutants, TheStepsLogsumexpInTheBackwardPass) {
  if (!backward()) return;  // of the backward pass
  static AttentionKernel own = kernel_of(Pass::backward);
  own.launch = [](const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                  Stream stream) {
    Problem forward = at.problem;
    forward.pass = Pass::forward;
    const Launch first{.problem = forward, .device = at.device};
    std::vector<float> logsumexp(static_cast<size_t>(forward.query_rows()));
    std::vector<std::byte> o(static_cast<size_t>(forward.output_elements() * 4));
    std::vector<std::byte> scratch(kernel_of(Pass::forward).workspace_bytes(first) + 64);
    void* aligned = scratch.data();
    size_t space = scratch.size();
    std::align(64, space - 64, aligned, space);
    TensorView view =
        dense_view(static_cast<void*>(o.data()), Dtype::fp32, Layout::bhsd, forward.batch,
                   forward.q_heads, forward.q_len, forward.value_dim());
    kernel_of(Pass::forward)
        .launch(first, {.q = in.q, .k = in.k, .v = in.v},
                {.o = view, .logsumexp = logsumexp.data()}, aligned, stream);
    Inputs changed = in;
    changed.logsumexp = logsumexp.data();
    kernel_of(Pass::backward).launch(at, changed, out, workspace, stream);
  };
  expect("failed", {"tiled:ring"}, [](SplitParts& parts, const Problem&) { parts.kernel = &own; });
}

// A row of padding has the logsumexp of a row without keys: exp(S + infinity) reaches dK and dV.
TEST_P(SplitMutants, PaddingThatExplodes) {
  if (!backward()) return;  // of the backward pass
  static AttentionKernel padded = kernel_of(Pass::backward);
  padded.launch = [](const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                     Stream stream) {
    std::vector<float> logsumexp(in.logsumexp, in.logsumexp + at.problem.query_rows());
    logsumexp.back() = -INFINITY;
    Inputs changed = in;
    changed.logsumexp = logsumexp.data();
    kernel_of(Pass::backward).launch(at, changed, out, workspace, stream);
  };
  item_.problem.q_len = item_.problem.kv_len = 5;  // of eight chunks three are empty
  expect("failed", {"tiled:gather", "tiled:ulysses", "tiled:ring", "tiled:gated"},
         [](SplitParts& parts, const Problem&) { parts.kernel = &padded; });
}

// O is rounded to bf16 at each merge. In bf16 itself that is as exact as P, and no defect.
TEST_P(SplitMutants, MergingInBf16) {
  if (backward() || item_.problem.dtype == Dtype::bf16) return;  // forward, other dtypes
  item_.problem.gpus = 8;
  const auto in_bf16 = [](SplitParts& parts, const Problem&) {
    parts.merge = [](const PartialRow& sum, const PartialRow& part, int64_t columns) {
      merge_rows(sum, part, columns);
      for (int64_t i = 0; i < columns; ++i) sum.o[i] = round_to(Dtype::bf16, sum.o[i]);
    };
  };
  expect("failed", {"tiled:ring"}, in_bf16);
  decode();
  expect("failed", {"tiled:dcp"}, in_bf16);
}

void merge_without_care(const PartialRow& sum, const PartialRow& part, int64_t columns) {
  const float highest = std::max(*sum.logsumexp, *part.logsumexp);
  const float w1 = std::exp(*sum.logsumexp - highest), w2 = std::exp(*part.logsumexp - highest);
  for (int64_t i = 0; i < columns; ++i) sum.o[i] = (w1 * sum.o[i] + w2 * part.o[i]) / (w1 + w2);
  *sum.logsumexp = highest + std::log(w1 + w2);
}

// Queries that see no finite score, neither before nor in this step. A key is infinite, and where
// the sign of a query makes its score -infinity and its chunk has no other key, both parts are so.
TEST_P(SplitMutants, MinusInfinityLessMinusInfinity) {
  if (backward()) return;  // forward
  const auto without_care = [](SplitParts& parts, const Problem&) {
    parts.merge = merge_without_care;
  };
  item_.inputs.distribution = Distribution::inf_key;
  int caught = 0;
  for (const int64_t length : {5, 6, 7, 8}) {
    item_.problem.q_len = item_.problem.kv_len = length;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      item_.inputs.seed = seed;
      expect("ok", {"tiled:ring"}, nullptr);
      if (status(SplitMutant("tiled:ring", without_care)) == "failed") ++caught;
    }
  }
  EXPECT_GT(caught, 0);
}

// A part whose only key is infinite may have no finite score, and with fewer keys than devices the
// first has none.
TEST_P(SplitMutants, MinusInfinityLessMinusInfinityWhileDecoding) {
  if (backward()) return;  // forward
  decode();
  item_.inputs.distribution = Distribution::inf_key;
  item_.problem.mask = Mask::none;
  int caught = 0;
  for (const int64_t length : {3, 5, 6, 7, 8}) {
    item_.problem.kv_len = length;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      item_.inputs.seed = seed;
      expect("ok", {"tiled:dcp"}, nullptr);
      if (status(SplitMutant("tiled:dcp", [](SplitParts& parts, const Problem&) {
            parts.merge = merge_without_care;
          })) == "failed") {
        ++caught;
      }
    }
  }
  EXPECT_GT(caught, 0);
}

// L1 + log(1 + exp(L2 - L1)), which is infinite where L2 is higher by 89 and more.
TEST_P(SplitMutants, AMergeThatOverflows) {
  if (backward()) return;  // forward
  item_.problem.scale = 12;
  expect("ok", {"tiled:ring"}, nullptr);
  const auto overflowing = [](SplitParts& parts, const Problem&) {
    parts.merge = [](const PartialRow& sum, const PartialRow& part, int64_t columns) {
      if (*sum.logsumexp == -INFINITY) return merge_rows(sum, part, columns);
      const float all = *sum.logsumexp + std::log(1 + std::exp(*part.logsumexp - *sum.logsumexp));
      for (int64_t i = 0; i < columns; ++i) {
        sum.o[i] =
            std::exp(*sum.logsumexp - all) * sum.o[i] + std::exp(*part.logsumexp - all) * part.o[i];
      }
      *sum.logsumexp = all;
    };
  };
  expect("failed", {"tiled:ring"}, overflowing);
  decode();
  expect("ok", {"tiled:dcp"}, nullptr);
  expect("failed", {"tiled:dcp"}, overflowing);
}

// Lengths that 2P does not divide: the last tokens are in no chunk.
TEST_P(SplitMutants, TokensLeftOver) {
  item_.problem.q_len = item_.problem.kv_len = 127;
  expect("failed", {"tiled:gather", "tiled:ring", "tiled:gated"},
         [](SplitParts& parts, const Problem& p) {
           parts.tokens.tokens = p.kv_len / parts.tokens.chunks() * parts.tokens.chunks();
         });
}

}  // namespace
}  // namespace flashbench
