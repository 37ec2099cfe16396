#include "host/thread_pool.h"

#include <fmt/format.h>
#include <hwy/cache_control.h>

#include <system_error>

#include "attention/error.h"

namespace flashbench {

namespace {

// Waking a sleeping thread takes 50 to 200 us in a virtual machine, as long as a small problem. A
// waiting thread therefore polls about this many times, for some 200 us, before it sleeps.
constexpr int kSpins = 4000;

// Whether the condition became true.
template <typename Condition>
bool spin_until(Condition condition) {
  for (int i = 0; i < kSpins; ++i) {
    if (condition()) return true;
    hwy::Pause();
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  try {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { worker_loop(thread); });
    }
  } catch (const std::system_error& error) {
    const size_t started = workers_.size() + 1;
    stop();
    throw BadInput(fmt::format("threads: the system could start only {} of {}: {}", started,
                               threads, error.code().message()));
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t items, const Body& body) {
  if (items == 0) return;
  std::lock_guard turn(turn_);
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    items_ = items;
    next_item_.store(0, std::memory_order_relaxed);
    error_ = nullptr;
    busy_workers_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  work(0);
  const auto all_done = [this] { return busy_workers_.load(std::memory_order_acquire) == 0; };
  if (!spin_until(all_done)) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, all_done);
  }
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::worker_loop(int thread) {
  uint64_t seen = 0;
  while (true) {
    const auto next_loop = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(next_loop)) {
      std::unique_lock lock(mutex_);
      start_.wait(lock, next_loop);
    }
    if (stopping_) return;
    ++seen;
    work(thread);
    if (busy_workers_.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
    { std::lock_guard lock(mutex_); }  // so that no caller is between its look and its sleep
    done_.notify_one();
  }
}

void ThreadPool::work(int thread) {
  try {
    while (true) {
      const int64_t item = next_item_.fetch_add(1, std::memory_order_relaxed);
      if (item >= items_) return;
      (*body_)(item, thread);
    }
  } catch (...) {
    next_item_.store(items_, std::memory_order_relaxed);  // start no further items
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

}  // namespace flashbench
