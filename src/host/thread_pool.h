// A fixed set of threads that runs one parallel loop at a time. We do not use OpenMP or TBB because
// ThreadSanitizer can see every synchronisation here (docs/design.md).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace flashbench {

class ThreadPool {
 public:
  // `threads` includes the caller, which works too: a pool of 1 starts no thread. Throws BadInput
  // if the system does not start that many.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(item, thread) for each item in [0, items), starting them in ascending order, each on
  // the next free thread; thread is in [0, threads()). Returns when all are done, and rethrows the
  // first exception of a body. A call from another thread waits for its turn. A body must not call
  // this.
  using Body = std::function<void(int64_t item, int thread)>;
  void parallel_for(int64_t items, const Body& body);

 private:
  void stop();
  void worker_loop(int thread);
  void work(int thread);

  std::vector<std::thread> workers_;
  std::mutex turn_;  // held by the running loop
  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::atomic<uint64_t> generation_{0};  // counts loops; workers wait for the next
  std::atomic<int> busy_workers_{0};
  bool stopping_ = false;

  const Body* body_ = nullptr;
  int64_t items_ = 0;
  std::atomic<int64_t> next_item_{0};
  std::exception_ptr error_;
};

}  // namespace flashbench
