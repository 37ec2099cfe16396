#include "measure/links.h"

#include <algorithm>
#include <functional>

#include "measure/stats.h"

namespace flashbench {

namespace {

constexpr int kCopies = 5;

class LinkMeasurement {
 public:
  LinkMeasurement(Device& device, int ranks, size_t bytes)
      : device_(device), group_(make_group(device, ranks)), bytes_(bytes) {
    for (int rank = 0; rank < ranks; ++rank) {
      from_.push_back(group_->allocate(rank, bytes));
      to_.push_back(group_->allocate(rank, bytes));
    }
  }

  // Bytes a second that a device receives if each pulls from these, one after another.
  double rate(const std::function<std::vector<int>(int rank)>& sources) {
    size_t most = 0;
    for (int rank = 0; rank < group_->ranks(); ++rank) most = std::max(most, sources(rank).size());
    const auto run = [&] {
      group_->run([&](int rank) {
        for (const int source : sources(rank)) {
          group_->pull(rank, source, {{data(to_, rank), data(from_, source), bytes_}});
        }
      });
    };
    run();  // the first is slower
    device_.synchronize();
    std::vector<double> seconds;
    for (int i = 0; i < kCopies; ++i) seconds.push_back(device_.time(run));
    return static_cast<double>(most * bytes_) / median(seconds);
  }

 private:
  static void* data(const std::vector<Buffer>& buffers, int rank) {
    return buffers[static_cast<size_t>(rank)].data();
  }

  Device& device_;
  std::unique_ptr<DeviceGroup> group_;
  size_t bytes_;
  std::vector<Buffer> from_, to_;
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

}  // namespace flashbench
