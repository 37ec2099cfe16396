#include "measure/links.h"

#include <algorithm>
#include <functional>

#include "device/nccl_ranks.h"
#include "measure/stats.h"

namespace flashbench {

namespace {

constexpr int kCopies = 5;

double median_seconds(Device& device, const std::function<void()>& run) {
  run();  // the first is slower
  device.synchronize();
  std::vector<double> seconds;
  for (int i = 0; i < kCopies; ++i) seconds.push_back(device.time(run));
  return median(seconds);
}

// Two buffers in the memory of each rank.
class RankBuffers {
 public:
  RankBuffers(DeviceGroup& group, size_t bytes) {
    for (int rank = 0; rank < group.ranks(); ++rank) {
      from_.push_back(group.allocate(rank, bytes));
      to_.push_back(group.allocate(rank, bytes));
    }
  }
  std::byte* from(int rank) const { return from_[static_cast<size_t>(rank)].as<std::byte>(); }
  std::byte* to(int rank) const { return to_[static_cast<size_t>(rank)].as<std::byte>(); }

 private:
  std::vector<Buffer> from_, to_;
};

class LinkMeasurement {
 public:
  LinkMeasurement(Device& device, int ranks, size_t bytes)
      : device_(device),
        group_(make_group(device, ranks)),
        bytes_(bytes),
        buffers_(*group_, bytes) {}

  // Bytes a second that a device receives if each pulls from these, one after another.
  double rate(const std::function<std::vector<int>(int rank)>& sources) {
    size_t most = 0;
    for (int rank = 0; rank < group_->ranks(); ++rank) most = std::max(most, sources(rank).size());
    const auto run = [&] {
      group_->run([&](int rank) {
        for (const int source : sources(rank)) {
          group_->pull(rank, source, {{buffers_.to(rank), buffers_.from(source), bytes_}});
        }
      });
    };
    return static_cast<double>(most * bytes_) / median_seconds(device_, run);
  }

 private:
  Device& device_;
  std::unique_ptr<DeviceGroup> group_;
  size_t bytes_;
  RankBuffers buffers_;
};

class NcclMeasurement {
 public:
  NcclMeasurement(Device& device, int ranks, size_t bytes)
      : device_(device),
        group_(make_nccl_group(device, ranks)),
        part_(bytes / static_cast<size_t>(ranks) / kAlignment * kAlignment),
        buffers_(*group_, whole()) {}

  size_t part() const { return part_; }
  size_t whole() const { return part_ * static_cast<size_t>(group_->ranks()); }
  int ranks() const { return group_->ranks(); }
  const RankBuffers& buffers() const { return buffers_; }

  // Bytes a second, of which each rank sends so many to others.
  double rate(size_t sent, const std::function<void(const NcclRanks&, int rank, Stream)>& work) {
    const auto run = [&] {
      group_->run([&](int rank) {
        group_->communicate(
            rank, [&](const NcclRanks& nccl, Stream stream) { work(nccl, rank, stream); });
      });
    };
    return static_cast<double>(sent) / median_seconds(device_, run);
  }

 private:
  static constexpr size_t kAlignment = 256;

  Device& device_;
  std::unique_ptr<DeviceGroup> group_;
  size_t part_;  // of a rank
  RankBuffers buffers_;
};

}  // namespace

Links measure_links(Device& device, int ranks, size_t bytes) {
  LinkMeasurement measurement(device, ranks, bytes);
  Links links{.ranks = ranks, .bytes = bytes, .one_way = {}, .both_ways = {}};
  for (int to = 0; to < ranks; ++to) {
    for (int from = 0; from < ranks; ++from) {
      const auto one_way = [&](int rank) {
        return rank == to ? std::vector{from} : std::vector<int>{};
      };
      const auto both_ways = [&](int rank) {
        return rank == from ? std::vector{to} : one_way(rank);
      };
      links.one_way.push_back(to == from ? 0 : measurement.rate(one_way));
      links.both_ways.push_back(to == from ? 0 : measurement.rate(both_ways));
    }
  }
  links.all_at_once = measurement.rate([&](int rank) {
    std::vector<int> others;
    for (int step = 1; step < ranks; ++step) others.push_back((rank + step) % ranks);
    return others;
  });
  return links;
}

NcclRates measure_nccl(Device& device, int ranks, size_t bytes) {
  NcclMeasurement measurement(device, ranks, bytes);
  const RankBuffers& buffers = measurement.buffers();
  const size_t part = measurement.part(), whole = measurement.whole(), others = whole - part;
  NcclRates rates{.bytes = whole};
  rates.send_receive = measurement.rate(whole, [&](const auto& nccl, int rank, Stream stream) {
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    nccl.exchange(rank, {{next, buffers.from(rank), whole}}, {{previous, buffers.to(rank), whole}},
                  stream);
  });
  rates.all_gather = measurement.rate(others, [&](const auto& nccl, int rank, Stream stream) {
    nccl.all_gather(rank, buffers.from(rank), buffers.to(rank), part, stream);
  });
  rates.all_to_all = measurement.rate(others, [&](const auto& nccl, int rank, Stream stream) {
    std::vector<NcclSend> sends;
    std::vector<NcclReceive> receives;
    for (int other = 0; other < ranks; ++other) {
      const size_t at = static_cast<size_t>(other) * part;
      sends.push_back({other, buffers.from(rank) + at, part});
      receives.push_back({other, buffers.to(rank) + at, part});
    }
    nccl.exchange(rank, sends, receives, stream);
  });
  rates.reduce_scatter = measurement.rate(others, [&](const auto& nccl, int rank, Stream stream) {
    nccl.reduce_scatter(rank, reinterpret_cast<const float*>(buffers.from(rank)),
                        reinterpret_cast<float*>(buffers.to(rank)), part / sizeof(float), stream);
  });
  return rates;
}

}  // namespace flashbench
