// The counters of a build without CUPTI.
#include "measure/counters.h"

namespace flashbench {

std::unique_ptr<CounterReader> make_cuda_counter_reader(Device&) {
  return make_no_counter_reader(
      {.status = CounterStatus::no_library,
       .reason = "this flashbench was built without CUPTI's range profiler (CUDA 12.8 or later)"});
}

}  // namespace flashbench
