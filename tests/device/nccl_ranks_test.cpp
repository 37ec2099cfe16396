// What several GPUs do by NCCL, with a fake of it whose ranks are threads and whose memory is the
// host's. cuda_nccl_test.cpp has the same on GPUs.
#include "device/nccl_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

class FakeNcclRanks : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  static void on_each(const std::function<void(int rank)>& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
  }

  const NcclLibrary library_ = open_nccl({FAKE_NCCL});
  NcclRanks nccl_{library_, {4, 0, 2}};
  std::vector<std::vector<float>> from_{{1, 2, 3}, {10, 20, 30}, {100, 200, 300}};
  std::vector<std::vector<float>> to_{kRanks, std::vector<float>(3)};
};

TEST_F(FakeNcclRanks, ExchangeWithSeveralAtOnce) {
  on_each([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    std::vector<NcclSend> sends;
    std::vector<NcclReceive> receives;
    for (int other = 0; other < kRanks; ++other) {
      sends.push_back({other, &from_[r][static_cast<size_t>(other)], sizeof(float)});
      receives.push_back({other, &to_[r][static_cast<size_t>(other)], sizeof(float)});
    }
    nccl_.exchange(rank, sends, receives, {});
  });
  EXPECT_THAT(
      to_, ElementsAre(ElementsAre(1, 10, 100), ElementsAre(2, 20, 200), ElementsAre(3, 30, 300)));
}

TEST_F(FakeNcclRanks, GatherAndReduce) {
  on_each([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    nccl_.all_gather(rank, &from_[r][r], to_[r].data(), sizeof(float), {});
  });
  EXPECT_THAT(to_, testing::Each(ElementsAre(1, 20, 300)));
  on_each([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    nccl_.reduce_scatter(rank, from_[r].data(), to_[r].data(), 1, {});
  });
  EXPECT_EQ(to_[0][0], 111);
  EXPECT_EQ(to_[1][0], 222);
  EXPECT_EQ(to_[2][0], 333);
}

TEST_F(FakeNcclRanks, AnErrorNamesTheRankAndTheCall) {
  EXPECT_THAT(
      [&] {
        nccl_.exchange(1, {{2, nullptr, 4}}, {}, {});
      },
      ThrowsMessage<std::runtime_error>("rank 1: ncclSend: invalid argument: the fake says no"));
  EXPECT_THAT(
      [&] {
        NcclRanks(library_, {0, 1, 0});
      },
      ThrowsMessage<std::runtime_error>(
          "3 ranks: ncclCommInitAll: invalid usage: the fake says no"));
}

TEST_F(FakeNcclRanks, AfterAnAbortNothingWaits) {
  nccl_.abort();
  EXPECT_THAT(
      [&] {
        nccl_.exchange(2, {}, {{0, to_[2].data(), 4}}, {});
      },
      ThrowsMessage<std::runtime_error>("rank 2: NCCL was aborted after an error"));
}

TEST_F(FakeNcclRanks, NeedTheLibraryAndAGpuEach) {
  DeviceInfo info;
  info.ranks = 2;
  EXPECT_EQ(why_no_nccl(info, library_), std::nullopt);
  EXPECT_THAT(why_no_nccl(info, open_nccl({"/nowhere"})).value_or(""),
              HasSubstr("NCCL 2 cannot be opened: /nowhere"));
  info.ranks_share_gpus = true;
  EXPECT_THAT(why_no_nccl(info, library_).value_or(""), HasSubstr("no two ranks on one GPU"));
}

}  // namespace
}  // namespace flashbench
