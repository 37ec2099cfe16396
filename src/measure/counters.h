// Hardware counters of a run: bytes to and from memory, bytes through the L2, operations on tensor
// cores. CUPTI's range profiler reads them on NVIDIA GPUs (docs/measuring.md). The traffic model is
// never used in their place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/enum_names.h"
#include "attention/problem.h"
#include "device/device.h"
#include "measure/options.h"

namespace flashbench {

//   ok                they were read
//   denied            the driver, a hypervisor or a partition keeps them from this user
//   unsupported_chip  CUPTI does not know the chip, or cannot count on it
//   no_library        CUPTI is missing
//   no_driver         there is no driver to read them through
//   failed            CUPTI reported something else
//   off               they were not asked for, or are not read on this device
enum class CounterStatus { ok, denied, unsupported_chip, no_library, no_driver, failed, off };
template <>
inline constexpr auto kNames<CounterStatus> =
    names_of<CounterStatus>({{CounterStatus::ok, "ok"},
                             {CounterStatus::denied, "denied"},
                             {CounterStatus::unsupported_chip, "unsupported_chip"},
                             {CounterStatus::no_library, "no_library"},
                             {CounterStatus::no_driver, "no_driver"},
                             {CounterStatus::failed, "failed"},
                             {CounterStatus::off, "off"}});

// Whether counters can be read here, and if not, why.
struct CounterState {
  CounterStatus status = CounterStatus::off;
  int code = 0;          // CUPTI's error code; 0 if CUPTI was not called
  std::string reason{};  // a sentence, unless ok
  std::string chip{};    // CUPTI's name of the chip, e.g. "GH100"; empty if unknown
  int cupti = 0;         // CUPTI's version, e.g. 130001; 0 if there is no CUPTI
};

// A sentence that says why counters cannot be read in this state, which is not ok.
std::string why_none(const CounterState&);

// Values with the metric's full name, e.g. "dram__bytes_read.sum".
using CounterValues = std::vector<std::pair<std::string, double>>;

// The quantity that a metric counts. Its name differs between chips.
enum class Counted {
  dram_read,   // bytes
  dram_write,  // bytes
  l2,          // bytes looked up in the L2, by any requester
  tensor,      // operations on tensor cores, two per multiply-add
};

// Selects from the metrics that a chip lists those to read for a problem of this dtype, as names
// with ".sum": those of the dtype's tensor operations (for fp32 those of TF32, which should be 0)
// and all that do not depend on the dtype.
std::vector<std::string> wanted_metrics(const std::vector<std::string>& listed, Dtype);

// The sum of the values of this quantity; empty if there are none.
std::optional<double> total(const CounterValues&, Counted);

// One provider's run of a case, counted.
struct CounterReport {
  CounterState state{};
  CacheState cache = CacheState::warm;  // before the run, as in the timing
  int passes = 0;                       // runs needed to read all metrics
  CounterValues run{};                  // a range around one run
  // A range around one run and a read of `eviction_bytes`, which writes back what the run left in
  // the L2.
  CounterValues run_and_eviction{};
  int64_t eviction_bytes = 0;
  std::vector<CounterValues> launches{};  // each kernel of a run; empty if there is only one
};

// Reading the counters takes a fifth of a second for a range, and as much for all launches.
enum class CounterDetail {
  run,  // the run; with a cold cache also run_and_eviction, without which the run says too little
  everything,  // always run_and_eviction, and launches
};

// Bytes to and from memory that the run causes. With a cold cache: the traffic during the run, and
// what the run left in the L2 to be written back. With a warm cache each run writes back what the
// previous one left, so that it is the traffic during the run. Empty if not counted.
std::optional<int64_t> measured_bytes(const CounterReport&);

// Reads counters of work on one device, in a process that times nothing.
class CounterReader {
 public:
  virtual ~CounterReader() = default;

  using Launch = std::function<void()>;

  virtual const CounterState& state() const = 0;

  // Calls `before`, then `work` with the counters on. Both launch work, and may be called several
  // times. Throws CounterError.
  virtual CounterValues count(Dtype, const Launch& before, const Launch& work) = 0;

  // The same, separately for each kernel that `work` launches, in order and serialised.
  virtual std::vector<CounterValues> count_launches(Dtype, const Launch& before,
                                                    const Launch& work) = 0;

  // The number of times that count() calls `work`.
  virtual int passes(Dtype) = 0;
};

class CounterError : public std::runtime_error {
 public:
  CounterError(CounterStatus its_status, int its_code, const std::string& reason)
      : std::runtime_error(reason), status(its_status), code(its_code) {}

  CounterStatus status;
  int code;
};

// Makes the reader for the current device. If none can be read, its state says why.
std::unique_ptr<CounterReader> make_counter_reader(Device&);

// Makes a reader that reads nothing, for the reason in this state.
std::unique_ptr<CounterReader> make_no_counter_reader(CounterState);

// The reader for a GPU; builds with and without CUPTI implement it differently.
std::unique_ptr<CounterReader> make_cuda_counter_reader(Device&);

// Counts a run that starts with the cache state of its timing. Errors are in the report's state.
CounterReport count_run(Device&, CounterReader&, Dtype, CacheState, CounterDetail,
                        const CounterReader::Launch& run);

}  // namespace flashbench
