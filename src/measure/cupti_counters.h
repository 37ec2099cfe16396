// CUPTI's range profiler as a CounterReader, over any set of its entry points: tests bring their
// own.
#pragma once

#include "device/cupti_library.h"
#include "measure/counters.h"

namespace flashbench {

// The metrics that a chip lists, and how many runs it takes to read some of them: what CUPTI's host
// API knows, without a GPU or driver. `availability` is the image that a GPU of this chip gives.
// Throws CounterError.
class CuptiChip {
 public:
  CuptiChip(const CuptiLibrary&, const std::string& chip,
            const std::vector<uint8_t>& availability = {});
  ~CuptiChip();
  CuptiChip(const CuptiChip&) = delete;
  CuptiChip& operator=(const CuptiChip&) = delete;

  std::vector<std::string> listed_metrics() const;

  // What the profiler is to count, for one set of metrics. To be asked for once.
  std::vector<uint8_t> config_image(const std::vector<std::string>& metrics);
  int passes(std::vector<uint8_t>& config_image) const;

  // Of a range in a counter data image. Throws CounterError for values that are no counts.
  CounterValues evaluate(const std::vector<std::string>& metrics,
                         const std::vector<uint8_t>& counter_data, size_t range) const;

 private:
  const CuptiLibrary& library_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
};

// Where CUPTI counts: the device's number, its context (null: the current one), and how to wait
// until all that was launched there is done.
struct CuptiTarget {
  int device_index = 0;
  CUcontext context = nullptr;
  std::function<void()> synchronize;
};

// Tries the way to the counters out to its end, so that its state says whether they can be read.
std::unique_ptr<CounterReader> make_cupti_reader(const CuptiLibrary&, const CuptiTarget&);

}  // namespace flashbench
