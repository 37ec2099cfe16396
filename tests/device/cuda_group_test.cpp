// Ranks of GPUs; skipped without a GPU. Ranks that share the first GPU run the same code as ranks
// on several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/cuda.h"
#include "device/device_group.h"
#include "device/page_owners.h"
#include "device/placed_tensor.h"

namespace flashbench {
namespace {

using testing::Each;
using testing::Gt;
using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;

class CudaGroups : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    try {
      device_ = make_device(GetParam(), 0);
    } catch (const NoDevice& error) {
      GTEST_SKIP() << error.what();
    }
    ranks_ = device_->info().ranks;
    group_ = make_group(*device_, ranks_);
  }

  Buffer of_rank(int rank, const std::vector<int>& values) {
    Buffer buffer = group_->allocate(rank, values.size() * sizeof(int));
    device_->copy_to_device(buffer.data(), values.data(), buffer.bytes());
    return buffer;
  }
  std::vector<int> read(const Buffer& buffer) {
    std::vector<int> values(buffer.bytes() / sizeof(int));
    device_->synchronize();
    device_->copy_to_host(values.data(), buffer.data(), buffer.bytes());
    return values;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceGroup> group_;
  int ranks_ = 0;
};

INSTANTIATE_TEST_SUITE_P(, CudaGroups,
                         testing::Values("cuda:0,0", "cuda:0,0,0,0", "cuda:0,1", "cuda:0,1,2,3"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == ':' || c == ','; }, '_');
                           return name;
                         });

TEST_P(CudaGroups, AreDescribed) {
  EXPECT_EQ(group_->ranks(), ranks_);
  EXPECT_EQ(device_->info().ranks_share_gpus, std::string(GetParam()).starts_with("cuda:0,0"));
  EXPECT_EQ(group_->info(ranks_ - 1).name, device_->info().name);
  EXPECT_EQ(make_group(*device_, ranks_ + 1), nullptr);
}

// Pages of two ranks are one range of addresses, for copies, poison and kernels alike.
TEST_P(CudaGroups, MemoryOfSeveralRanksIsOneRange) {
  constexpr size_t kMiB = size_t{1} << 20, kBytes = 11 * kMiB + 6;
  const Buffer buffer =
      device_->allocate(kBytes, MemoryUse::output,
                        {{256, 5 * kMiB, 1}, {5 * kMiB, 9 * kMiB, 0}, {9 * kMiB, kBytes, 1}});
  EXPECT_EQ(device_->used().output, static_cast<int64_t>(kBytes));
  EXPECT_EQ(device_->poisoned_elements(buffer.data(), kBytes / 2, 2), kBytes / 2);
  std::vector<unsigned short> values(kBytes / 2), found(kBytes / 2);
  std::iota(values.begin(), values.end(), static_cast<unsigned short>(1));
  device_->copy_to_device(buffer.data(), values.data(), kBytes);
  device_->copy_to_host(found.data(), buffer.data(), kBytes);
  EXPECT_EQ(found, values);
  const Buffer alone = device_->allocate(kBytes, MemoryUse::output);
  device_->copy_to_device(alone.data(), values.data(), kBytes);
  EXPECT_EQ(device_->hash(buffer.data(), kBytes, 3), device_->hash(alone.data(), kBytes, 3));
  device_->poison(buffer.as<std::byte>() + 3, kBytes - 5);
  device_->copy_to_host(found.data(), buffer.data(), kBytes);
  EXPECT_EQ(found.front(), values.front());
  EXPECT_EQ(found.back(), values.back());
  EXPECT_EQ(found[1], 0xff00 | (values[1] & 0xff));
  EXPECT_EQ(std::count(found.begin() + 2, found.end() - 1, 0xffff),
            static_cast<long>(found.size()) - 3);
}

// So that no copy has rows of two GPUs where chunks are whole pages.
TEST_P(CudaGroups, TensorsOfSeveralRanksBeginWithAPage) {
  const ConstTensorView shape =
      dense_view<const void>(nullptr, Dtype::bf16, Layout::bshd, 1, 16, 4096, 128);
  const PlacedTensor shared(
      *device_, shape, Placement::contiguous, MemoryUse::input,
      PlacedTensor::Ranks{owned_rows(TokenSplit{Split::zigzag, 4096, ranks_}), ranks_});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(shared.view().data) % kSharedPageBytes, 0u);
  EXPECT_EQ(shared.damaged_guard_bytes(), 0);
}

// Copies of own memory, then of the neighbour's, which is of this run and not of the one before.
TEST_P(CudaGroups, PullsFollowTheWorkBeforeThem) {
  constexpr size_t kValues = 1 << 20;
  std::vector<Buffer> from, mine, to;
  for (int rank = 0; rank < ranks_; ++rank) {
    from.push_back(of_rank(rank, std::vector<int>(kValues, 0)));
    mine.push_back(group_->allocate(rank, kValues * sizeof(int)));
    to.push_back(group_->allocate(rank, kValues * sizeof(int)));
  }
  for (int run = 1; run <= 20; ++run) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::vector<int> values(kValues, 100 * run + rank);
      device_->copy_to_device(from[static_cast<size_t>(rank)].data(), values.data(),
                              kValues * sizeof(int));
    }
    group_->run([&](int rank) {
      const auto r = static_cast<size_t>(rank), next = (r + 1) % static_cast<size_t>(ranks_);
      const auto whole = [](const Buffer& t, const Buffer& f) {
        return RowCopy{t.data(), f.data(), f.bytes()};
      };
      group_->wait(rank, group_->pull(rank, rank, {whole(mine[r], from[r])}));
      group_->barrier(rank);
      group_->wait(rank, group_->pull(rank, static_cast<int>(next), {whole(to[r], mine[next])}));
      group_->barrier(rank);
    });
    for (int rank = 0; rank < ranks_; ++rank) {
      ASSERT_THAT(read(to[static_cast<size_t>(rank)]), Each(100 * run + (rank + 1) % ranks_));
    }
  }
}

TEST_P(CudaGroups, CopyRowsWithTheirPitches) {
  const Buffer from = of_rank(1, {1, 2, 0, 3, 4, 0, 5, 6, 0});
  const Buffer to = of_rank(0, std::vector<int>(12, -1));
  group_->run([&](int rank) {
    if (rank != 0) return;
    group_->pull(0, 1,
                 {{to.data(), from.data(), 2 * sizeof(int), 3, 4 * sizeof(int), 3 * sizeof(int)}});
  });
  EXPECT_EQ(read(to), (std::vector<int>{1, 2, -1, -1, 3, 4, -1, -1, 5, 6, -1, -1}));
}

TEST_P(CudaGroups, TheFirstFailureEndsAllAndTheNextRunIsWhole) {
  for (int run = 0; run < 5; ++run) {
    EXPECT_THAT(
        [&] {
          group_->run([&](int rank) {
            if (rank == run % ranks_) throw std::runtime_error("lost");
            group_->barrier(rank);
          });
        },
        ThrowsMessage<std::runtime_error>(HasSubstr("lost")));
    group_->run([&](int rank) { group_->barrier(rank); });
    device_->synchronize();
  }
}

TEST_P(CudaGroups, TheTimeIsThatOfTheSlowestRank) {
  constexpr size_t kBytes = size_t{256} << 20;
  std::vector<Buffer> from, to;
  for (int rank = 0; rank < ranks_; ++rank) {
    from.push_back(group_->allocate(rank, kBytes));
    to.push_back(group_->allocate(rank, kBytes));
  }
  const auto copies_of_rank_1 = [&](int copies) {
    return device_->time([&] {
      group_->run([&](int rank) {
        for (int i = 0; rank == 1 && i < copies; ++i) {
          group_->pull(1, 0, {{to[1].data(), from[0].data(), kBytes}});
        }
      });
    });
  };
  copies_of_rank_1(1);
  const double once = copies_of_rank_1(2), thrice = copies_of_rank_1(6);
  EXPECT_GT(once, 2e-6);  // nothing copies 250 TB/s
  EXPECT_GT(thrice, 2 * once);
  EXPECT_THAT(group_->rank_seconds(), SizeIs(static_cast<size_t>(ranks_)));
  EXPECT_THAT(group_->rank_seconds(), Each(Gt(0)));
  EXPECT_EQ(std::ranges::max(group_->rank_seconds()), thrice);
  EXPECT_EQ(group_->rank_seconds()[1], thrice);
  // Without ranks the device's own stream is timed.
  EXPECT_GT(device_->time([&] { device_->poison(to[0].data(), kBytes); }), 2e-6);
}

TEST_P(CudaGroups, ALaunchThatWaitsIsAnError) {
  EXPECT_THROW(device_->time([&] {
    group_->run([](int) {});
    device_->synchronize();
  }),
               std::runtime_error);
  EXPECT_GT(device_->time([&] { group_->run([](int) {}); }), 0);  // the device still works
}

TEST_P(CudaGroups, AreNoGraph) {
  const Buffer buffer = of_rank(0, {1, 2, 3});
  const Buffer other = of_rank(1, {4, 5, 6});
  const auto run = [&] {
    group_->run([&](int rank) {
      if (rank == 0) group_->pull(0, 1, {{buffer.data(), other.data(), buffer.bytes()}});
    });
  };
  EXPECT_TRUE(device_->kernels_of(run).empty());
  EXPECT_EQ(read(buffer), (std::vector<int>{1, 2, 3})) << "it ran";
  const Replay replay = device_->replayable(run);
  EXPECT_EQ(replay.graph_nodes, 0);
  replay.launch();
  EXPECT_EQ(read(buffer), (std::vector<int>{4, 5, 6}));
}

TEST_P(CudaGroups, LeaveNothingBehindTheDevicesStream) {
  constexpr size_t kBytes = size_t{512} << 20;
  const Buffer from = group_->allocate(0, kBytes), to = group_->allocate(1, kBytes);
  const double behind = device_->seconds_behind([&] {
    group_->run([&](int rank) {
      if (rank == 1) group_->pull(1, 0, {{to.data(), from.data(), kBytes}});
    });
  });
  EXPECT_LT(behind, 1e-4);
}

TEST(CudaGroup, GpusThatThereAreNotAreSaid) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  EXPECT_THAT([] { make_device("cuda:0,999", 0); },
              ThrowsMessage<NoDevice>(HasSubstr("there is no cuda:999: this machine has ")));
}

TEST(CudaGroup, OneGpuSharesWithNobody) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const auto device = make_device("cuda:0", 0);
  EXPECT_EQ(device->info().ranks, 0);
  EXPECT_EQ(make_group(*device, 2), nullptr);
}

}  // namespace
}  // namespace flashbench
