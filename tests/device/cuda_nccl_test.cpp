// Groups of several GPUs with NCCL; skipped without them or without NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/cuda.h"
#include "device/nccl_ranks.h"

namespace flashbench {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr size_t kPart = 300'001;  // values of a rank: more than one of NCCL's pieces

class CudaNccl : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    try {
      device_ = make_device(GetParam(), 0);
    } catch (const NoDevice& error) {
      GTEST_SKIP() << error.what();
    }
    if (const auto why = why_no_nccl(device_->info(), nccl_library())) GTEST_SKIP() << *why;
    ranks_ = static_cast<size_t>(device_->info().ranks);
    group_ = make_nccl_group(*device_, device_->info().ranks);
    for (size_t rank = 0; rank < ranks_; ++rank) {
      from_.push_back(group_->allocate(static_cast<int>(rank), bytes()));
      to_.push_back(group_->allocate(static_cast<int>(rank), bytes()));
      std::vector<float> values(ranks_ * kPart);
      for (size_t i = 0; i < values.size(); ++i) values[i] = value(rank, i);
      device_->copy_to_device(from_[rank].data(), values.data(), bytes());
    }
  }

  // Small integers, so that sums are exact.
  static float value(size_t rank, size_t i) {
    return static_cast<float>(i % 1009 + 2000 * rank + i / kPart * 20'000);
  }
  size_t bytes() const { return ranks_ * kPart * sizeof(float); }
  std::byte* part_of(const std::vector<Buffer>& buffers, size_t rank, size_t part) const {
    return buffers[rank].as<std::byte>() + part * kPart * sizeof(float);
  }

  void communicate(const std::function<void(const NcclRanks&, size_t rank, Stream)>& work) {
    group_->run([&](int rank) {
      group_->wait(rank, group_->communicate(rank, [&](const NcclRanks& nccl, Stream stream) {
        work(nccl, static_cast<size_t>(rank), stream);
      }));
    });
    device_->synchronize();
  }

  // The first `count` values that each rank has received are these.
  void expect(size_t count, const std::function<float(size_t rank, size_t i)>& expected) {
    for (size_t rank = 0; rank < ranks_; ++rank) {
      std::vector<float> values(count), all(count);
      device_->copy_to_host(values.data(), to_[rank].data(), count * sizeof(float));
      for (size_t i = 0; i < count; ++i) all[i] = expected(rank, i);
      ASSERT_TRUE(values == all) << "rank " << rank;
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceGroup> group_;
  size_t ranks_ = 0;
  std::vector<Buffer> from_, to_;
};

INSTANTIATE_TEST_SUITE_P(, CudaNccl, testing::Values("cuda:0,1", "cuda:0,1,2,3"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == ':' || c == ','; }, '_');
                           return name;
                         });

TEST_P(CudaNccl, SendsToTheNextRank) {
  for (int run = 0; run < 3; ++run) {
    communicate([&](const NcclRanks& nccl, size_t rank, Stream stream) {
      const auto next = static_cast<int>((rank + 1) % ranks_);
      const auto previous = static_cast<int>((rank + ranks_ - 1) % ranks_);
      nccl.exchange(static_cast<int>(rank), {{next, from_[rank].data(), bytes()}},
                    {{previous, to_[rank].data(), bytes()}}, stream);
    });
    expect(ranks_ * kPart,
           [&](size_t rank, size_t i) { return value((rank + ranks_ - 1) % ranks_, i); });
  }
}

TEST_P(CudaNccl, ExchangesPartsOfAll) {
  communicate([&](const NcclRanks& nccl, size_t rank, Stream stream) {
    std::vector<NcclSend> sends;
    std::vector<NcclReceive> receives;
    for (size_t other = 0; other < ranks_; ++other) {
      sends.push_back({static_cast<int>(other), part_of(from_, rank, other), bytes() / ranks_});
      receives.push_back({static_cast<int>(other), part_of(to_, rank, other), bytes() / ranks_});
    }
    nccl.exchange(static_cast<int>(rank), sends, receives, stream);
  });
  expect(ranks_ * kPart,
         [&](size_t rank, size_t i) { return value(i / kPart, rank * kPart + i % kPart); });
}

TEST_P(CudaNccl, GathersAndReduces) {
  communicate([&](const NcclRanks& nccl, size_t rank, Stream stream) {
    nccl.all_gather(static_cast<int>(rank), from_[rank].data(), to_[rank].data(), bytes() / ranks_,
                    stream);
  });
  expect(ranks_ * kPart, [&](size_t, size_t i) { return value(i / kPart, i % kPart); });
  communicate([&](const NcclRanks& nccl, size_t rank, Stream stream) {
    nccl.reduce_scatter(static_cast<int>(rank), from_[rank].as<float>(), to_[rank].as<float>(),
                        kPart, stream);
  });
  expect(kPart, [&](size_t rank, size_t i) {
    float sum = 0;
    for (size_t other = 0; other < ranks_; ++other) sum += value(other, rank * kPart + i);
    return sum;
  });
}

// Where a rank fails, what the others have queued ends, and they cannot go on.
TEST_P(CudaNccl, AFailureEndsWhatWaitsForTheRank) {
  const auto send_round = [&](const NcclRanks& nccl, size_t rank, Stream stream) {
    const auto next = static_cast<int>((rank + 1) % ranks_);
    const auto previous = static_cast<int>((rank + ranks_ - 1) % ranks_);
    nccl.exchange(static_cast<int>(rank), {{next, from_[rank].data(), bytes()}},
                  {{previous, to_[rank].data(), bytes()}}, stream);
  };
  communicate(send_round);
  const auto failing = [&](const NcclRanks& nccl, size_t rank, Stream stream) {
    if (rank == 0) throw std::runtime_error("lost");
    send_round(nccl, rank, stream);
  };
  EXPECT_THAT([&] { communicate(failing); }, ThrowsMessage<std::runtime_error>("lost"));
  device_->synchronize();
  EXPECT_THAT([&] { communicate(send_round); },
              ThrowsMessage<std::runtime_error>(HasSubstr("NCCL was aborted after an error")));
}

TEST(CudaNcclGroup, RanksThatShareAGpuAreRefused) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const auto device = make_device("cuda:0,0", 0);
  EXPECT_THROW(make_nccl_group(*device, 2), std::runtime_error);
}

}  // namespace
}  // namespace flashbench
