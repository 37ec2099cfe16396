// What hardware counters say of a run: bytes to and from memory, bytes through the L2, operations
// on tensor cores. Read on NVIDIA GPUs by CUPTI's range profiler (docs/measuring.md); the model of
// the traffic never stands in for them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/device.h"
#include "plan/config.h"

namespace flashbench {

//   ok                they were read
//   denied            the driver, a hypervisor or a partition keeps them from this user
//   unsupported_chip  CUPTI does not know the chip, or cannot count on it
//   no_library        CUPTI is missing
//   no_driver         there is no driver to read them through
//   failed            CUPTI reported something else
//   off               they were not asked for, or are not read on this device
enum class CounterStatus { ok, denied, unsupported_chip, no_library, no_driver, failed, off };
inline constexpr std::array kCounterStatuses{
    CounterStatus::ok,         CounterStatus::denied,    CounterStatus::unsupported_chip,
    CounterStatus::no_library, CounterStatus::no_driver, CounterStatus::failed,
    CounterStatus::off};
std::string_view name(CounterStatus);

// Whether counters can be read here, and if not, why.
struct CounterState {
  CounterStatus status = CounterStatus::off;
  int code = 0;          // CUPTI's; 0 where it was not asked
  std::string reason{};  // a sentence, unless ok
  std::string chip{};    // CUPTI's name of it, e.g. "GH100"; empty where it is not known
  int cupti = 0;         // CUPTI's version, e.g. 130001; 0 where there is none
};

// By the metric's full name, e.g. "dram__bytes_read.sum".
using CounterValues = std::vector<std::pair<std::string, double>>;

// What a metric counts. Chips differ in the names.
enum class Counted {
  dram_read,   // bytes
  dram_write,  // bytes
  l2,          // bytes that the L2 looked up, whoever asked for them
  tensor,      // operations on tensor cores, two for a multiply-add
};

// Of the metrics that a chip lists, those to read for a problem of this dtype: the names with
// ".sum", for the dtype's tensor operations (fp32: those of TF32, which should be none).
std::vector<std::string> wanted_metrics(const std::vector<std::string>& listed, Dtype);

// The sum of the values that count this; empty if there are none.
std::optional<double> total(const CounterValues&, Counted);

// One provider's run of a case, counted.
struct CounterReport {
  CounterState state{};
  CacheState cache = CacheState::warm;  // before the run, as in the timing
  int passes = 0;                       // runs that it took to read all metrics
  CounterValues run{};                  // a range around one run
  // Around a run and a read of `eviction_bytes`, which drives what the run left in the L2 out to
  // memory.
  CounterValues run_and_eviction{};
  int64_t eviction_bytes = 0;
  std::vector<CounterValues> launches{};  // each kernel of a run alone; empty if there is but one
};

// To take the counters, for a range or for all launches, costs a fifth of a second.
enum class CounterDetail {
  run,  // the run; after a cold cache, run_and_eviction too, without which it says too little
  everything,  // run_and_eviction in any case, and launches
};

// Bytes to and from memory that the run is answerable for. After a cold cache: what moved while it
// ran, and what it left in the L2 to be written back. In a row of runs (warm) each run writes back
// what the one before left: then what moved while it ran. Empty if not counted.
std::optional<int64_t> measured_bytes(const CounterReport&);

// Reads counters of work on one device. Lives in a process that times nothing.
class CounterReader {
 public:
  virtual ~CounterReader() = default;

  using Launch = std::function<void()>;

  virtual const CounterState& state() const = 0;

  // Calls `before`, then `work` with the counters on; both launch, and may be called several times.
  // Throws CounterError.
  virtual CounterValues count(Dtype, const Launch& before, const Launch& work) = 0;

  // The same, apart for each kernel that `work` launches, in order, one after the other.
  virtual std::vector<CounterValues> count_launches(Dtype, const Launch& before,
                                                    const Launch& work) = 0;

  // How often count() calls `work`.
  virtual int passes(Dtype) = 0;
};

class CounterError : public std::runtime_error {
 public:
  CounterError(CounterStatus its_status, int its_code, const std::string& reason)
      : std::runtime_error(reason), status(its_status), code(its_code) {}

  CounterStatus status;
  int code;
};

// Of the device that is current. Says in its state why none can be read, where that is so.
std::unique_ptr<CounterReader> make_counter_reader(Device&);

// Reads nothing, for the reason in this state.
std::unique_ptr<CounterReader> make_no_counter_reader(CounterState);

// What a build with CUPTI and one without each implement in their own way: of a GPU.
std::unique_ptr<CounterReader> make_cuda_counter_reader(Device&);

// Counts a run, from the state of the caches that its timing has. What goes wrong is in the
// report's state.
CounterReport count_run(Device&, CounterReader&, Dtype, CacheState, CounterDetail,
                        const CounterReader::Launch& run);

}  // namespace flashbench
