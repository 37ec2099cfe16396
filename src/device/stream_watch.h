// Says when the work on streams has come to a place, without work of the streams themselves but a
// record of an event there: a thread asks after the events a few times a second.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/cuda_event.h"

namespace flashbench {

class StreamWatch {
 public:
  explicit StreamWatch(int streams);
  // Calls for what has ended, and no more for what has not.
  ~StreamWatch();

  // Calls this soon after the work before it on the stream has ended, in the order of a stream. A
  // stream has a number and always the same GPU, which is that of the calling thread.
  void when_done(int number, cudaStream_t, std::function<void()> call);

 private:
  struct Place {
    std::unique_ptr<CudaEvent> event;
    std::function<void()> call;
  };
  struct Places {
    std::deque<Place> ahead;
    std::vector<std::unique_ptr<CudaEvent>> unused;
  };

  void watch();
  bool pass();  // calls for what has ended; whether anything is left

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Places> streams_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace flashbench
