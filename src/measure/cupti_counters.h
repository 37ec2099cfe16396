// CUPTI's range profiler as a CounterReader, over any set of its entry points: tests provide their
// own.
#pragma once

#include "device/cupti_library.h"
#include "measure/counters.h"

namespace flashbench {

// The metrics that a chip lists, and how many runs it takes to read some of them, from CUPTI's host
// API, which needs neither GPU nor driver. `availability` is the counter availability image of a
// GPU of this chip. Throws CounterError.
class CuptiChip {
 public:
  CuptiChip(const CuptiLibrary&, const std::string& chip,
            const std::vector<uint8_t>& availability = {});
  ~CuptiChip();
  CuptiChip(const CuptiChip&) = delete;
  CuptiChip& operator=(const CuptiChip&) = delete;

  std::vector<std::string> listed_metrics() const;

  // Configures the profiler for one set of metrics. Call it once.
  std::vector<uint8_t> config_image(const std::vector<std::string>& metrics);
  int passes(std::vector<uint8_t>& config_image) const;

  // Returns the values of a range in a counter data image. Throws CounterError for values that are
  // not counts.
  CounterValues evaluate(const std::vector<std::string>& metrics,
                         const std::vector<uint8_t>& counter_data, size_t range) const;

 private:
  const CuptiLibrary& library_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
};

// Where CUPTI counts: the device's number, its context (null: the current one), and a function that
// waits until all work launched there is done.
struct CuptiTarget {
  int device_index = 0;
  CUcontext context = nullptr;
  std::function<void()> synchronize;
};

// Makes a reader. It tries every step that counting needs, so that its state says whether counters
// can be read.
std::unique_ptr<CounterReader> make_cupti_reader(const CuptiLibrary&, const CuptiTarget&);

}  // namespace flashbench
