// What is looked at once a provider's outputs were judged right: do they follow the inputs, and are
// they the same every time.
#pragma once

#include <functional>
#include <stdexcept>

#include "device/device.h"
#include "device/device_tensors.h"
#include "providers/provider.h"
#include "report/record.h"

namespace flashbench {

// Outputs that a provider left wrong or unwritten, or something that it wrote where it must not.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Threads or processes that a provider left at work: they take time from whatever runs beside them.
class LeftRunning : public WrongResult {
 public:
  using WrongResult::WrongResult;
};

// One provider on one case, after its first run was judged right.
struct Audited {
  const Problem& problem;
  Device& device;
  Session& session;
  DeviceInputs& inputs;
  Inputs host_inputs;  // what fills them
  DeviceOutputs& outputs;
  HostOutputs& verified;   // of the run that was judged
  uint64_t verified_hash;  // of the device's, where it left them
  std::function<Verdict(HostOutputs&)> judge;
};

// What a run left. Throws WrongResult where a guard band was written to.
HostOutputs take_outputs(const DeviceOutputs&);

// Repeats the run until there are `runs`, the first one included, every fourth with cold caches,
// and compares bits; a repeat with other bits is judged. Ends early when `interrupted`, or when a
// repeat fails: `failed` then has its verdict.
Determinism repeat_runs(const Audited&, int runs, const std::function<bool()>& interrupted,
                        Verdict& failed);

// Throws WrongResult for a provider that leaves work running which the time between events does not
// cover.
void require_nothing_behind(const Audited&);

// Runs once more with V negated (backward: dO), which negates O (dQ, dK and dV) to the bit, since
// IEEE negation commutes with every step, and leaves the logsumexp alone; outputs that differ from
// that are judged, for kernels that are not deterministic. Throws WrongResult for a provider whose
// outputs do not follow. The inputs are as before afterwards.
void require_fresh_outputs(const Audited&);

}  // namespace flashbench
