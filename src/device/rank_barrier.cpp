#include "device/rank_barrier.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "device/device_group.h"

namespace flashbench {

RankBarrier::RankBarrier(int ranks, double most_seconds)
    : most_seconds_(most_seconds), here_(static_cast<size_t>(ranks), false) {}

void RankBarrier::begin() {
  const std::lock_guard lock(mutex_);
  here_.assign(here_.size(), false);
  count_ = 0;
  failure_ = nullptr;
}

void RankBarrier::arrive(int rank) {
  std::unique_lock lock(mutex_);
  if (failure_ != nullptr) throw RankFailed("another rank failed");
  here_[static_cast<size_t>(rank)] = true;
  const long round = round_;
  if (++count_ == here_.size()) {
    here_.assign(here_.size(), false);
    count_ = 0;
    ++round_;
    changed_.notify_all();
    return;
  }
  const bool in_time = changed_.wait_for(lock, std::chrono::duration<double>(most_seconds_),
                                         [&] { return round_ != round || failure_ != nullptr; });
  if (!in_time) {
    throw std::runtime_error(fmt::format("rank {} waited {:g} s for rank {}", rank, most_seconds_,
                                         fmt::join(missing(), ", ")));
  }
  if (round_ == round) throw RankFailed("another rank failed");
}

void RankBarrier::fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) failure_ = std::move(failure);
  changed_.notify_all();
}

std::exception_ptr RankBarrier::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::vector<int> RankBarrier::missing() const {
  std::vector<int> missing;
  for (size_t rank = 0; rank < here_.size(); ++rank) {
    if (!here_[rank]) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

}  // namespace flashbench
