#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "device/device_group.h"
#include "host/thread_pool.h"

namespace flashbench {

namespace {

void copy_rows(const RowCopy& copy) {
  auto* to = static_cast<std::byte*>(copy.to);
  const auto* from = static_cast<const std::byte*>(copy.from);
  for (size_t row = 0; row < copy.height; ++row) {
    std::memcpy(to + row * copy.to_pitch, from + row * copy.from_pitch, copy.width);
  }
}

// A thread that copies what it is given, one after the other: a GPU's copy engine.
class CopyEngine {
 public:
  struct Task {
    std::vector<RowCopy> copies;
    std::function<bool()> may_begin;  // waits; false: never
  };

  explicit CopyEngine(int rank) : thread_([this, rank] { work(rank); }) {}
  ~CopyEngine() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int64_t add(Task task) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
    changed_.notify_all();
    return ++added_;
  }

  void wait(int64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= number; });
  }
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == added_; });
  }

 private:
  void work(int rank) {
    pthread_setname_np(pthread_self(), ("copy " + std::to_string(rank)).c_str());
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const Task task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (task.may_begin()) {
        for (const RowCopy& copy : task.copies) copy_rows(copy);
      }
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  int64_t added_ = 0, done_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

class HostGroup final : public DeviceGroup {
 public:
  HostGroup(Device& host, int ranks)
      : host_(host), runners_(ranks), info_(host.info()), seconds_(static_cast<size_t>(ranks)) {
    info_.threads = std::max(1, info_.threads / ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      pools_.push_back(std::make_unique<ThreadPool>(info_.threads));
      engines_.push_back(std::make_unique<CopyEngine>(rank));
    }
  }

  int ranks() const override { return static_cast<int>(pools_.size()); }
  const DeviceInfo& info(int) const override { return info_; }
  Stream stream(int rank) override { return {.threads = pools_[index(rank)].get()}; }
  Buffer allocate(int, size_t bytes) override {
    return host_.allocate(bytes, MemoryUse::workspace);
  }

  void run(const std::function<void(int)>& body) override {
    failure_ = nullptr;
    here_ = 0;
    marks_.clear();
    // As many threads as ranks, so that ranks that wait for each other all run.
    runners_.parallel_for(ranks(), [&](int64_t item, int) {
      const auto rank = static_cast<int>(item);
      const auto start = std::chrono::steady_clock::now();
      try {
        body(rank);
      } catch (...) {
        fail(std::current_exception());
      }
      engines_[index(rank)]->finish();
      seconds_[index(rank)] =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
    return engines_[index(rank)]->add({std::move(copies), [this, from, mark] {
                                         return mark == kNoMark || has_mark(from, mark);
                                       }});
  }
  void wait(int rank, int64_t pull) override { engines_[index(rank)]->wait(pull); }
  void when_done(int, const std::function<void()>& call) override { call(); }

  void set_mark(int rank, int mark) override {
    const std::lock_guard lock(mutex_);
    marks_.emplace(rank, mark);
    changed_.notify_all();
  }

  void barrier(int) override {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    if (++here_ == ranks()) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round || failure_ != nullptr; });
    if (round_ == round) throw RankFailed("another rank failed");
  }

  std::vector<double> rank_seconds() const override { return seconds_; }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }

  // Waits for a mark; false if a rank has failed before.
  bool has_mark(int rank, int mark) {
    std::unique_lock lock(mutex_);
    const auto is_set = [&] { return marks_.contains({rank, mark}); };
    changed_.wait(lock, [&] { return is_set() || failure_ != nullptr; });
    return is_set();
  }

  // Keeps the first failure: those after it may be RankFailed.
  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
    changed_.notify_all();
  }

  Device& host_;
  ThreadPool runners_;
  DeviceInfo info_;  // of each rank
  std::vector<double> seconds_;
  std::vector<std::unique_ptr<ThreadPool>> pools_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
  std::set<std::pair<int, int>> marks_;  // of the ranks, in this run
  int here_ = 0;                         // ranks at the barrier
  int64_t round_ = 0;                    // of the barrier

  std::vector<std::unique_ptr<CopyEngine>> engines_;  // last: they use the others
};

}  // namespace

std::unique_ptr<DeviceGroup> make_host_group(Device& host, int ranks) {
  return std::make_unique<HostGroup>(host, ranks);
}

}  // namespace flashbench
