// A CUDA event, of the GPU that the thread works with when it is made.
#pragma once

#include <cuda_runtime_api.h>

#include "device/cuda_call.h"

namespace flashbench {

class CudaEvent {
 public:
  // With times, to a resolution of about half a microsecond; those that only order work are
  // cheaper.
  enum class Use { time, order };

  explicit CudaEvent(Use use) {
    FLASHBENCH_CUDA(cudaEventCreateWithFlags(
        &event_, use == Use::time ? cudaEventDefault : cudaEventDisableTiming));
  }
  ~CudaEvent() { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(cudaStream_t stream) { FLASHBENCH_CUDA(cudaEventRecord(event_, stream)); }

  // The stream, of any GPU, goes on once what was before the last record has ended.
  void hold_up(cudaStream_t stream) const {
    FLASHBENCH_CUDA(cudaStreamWaitEvent(stream, event_, 0));
  }

  // Whether what was before the last record has ended, or its GPU is lost.
  bool has_ended() const { return cudaEventQuery(event_) != cudaErrorNotReady; }

  double seconds_since(const CudaEvent& start) const {
    float milliseconds = 0;
    FLASHBENCH_CUDA(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace flashbench
