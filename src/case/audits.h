// Checks after a provider's outputs were judged right: whether they follow the inputs, and whether
// they are the same every time.
#pragma once

#include <functional>
#include <stdexcept>

#include "device/device.h"
#include "device/device_tensors.h"
#include "providers/provider.h"
#include "report/record.h"

namespace flashbench {

// A provider left outputs wrong or unwritten, or wrote where it must not.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A provider left threads or processes at work, which take time from whatever runs beside them.
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
  Inputs host_inputs;  // the contents of the inputs
  DeviceOutputs& outputs;
  HostOutputs& verified;   // outputs of the judged run
  uint64_t verified_hash;  // of the outputs on the device
  std::function<Verdict(HostOutputs&)> judge;
  // Of a forward pass: inputs with another Q and K (case/other_scores.h), and the same for them.
  std::function<const Inputs&()> other_scores;
  std::function<Verdict(HostOutputs&)> judge_other_scores;
};

// Copies the outputs of a run. Throws WrongResult if a guard band was written to.
HostOutputs take_outputs(const DeviceOutputs&);

// Repeats the run until there are `runs`, including the first one, every fourth with cold caches,
// and compares bits; a repeat with other bits is judged. Ends early if `interrupted`, or if a
// repeat fails; `failed` then receives its verdict.
Determinism repeat_runs(const Audited&, int runs, const std::function<bool()>& interrupted,
                        Verdict& failed);

// Throws WrongResult for a provider that leaves work running that the time between events does not
// include.
void require_nothing_behind(const Audited&);

// Runs once more with V (backward: dO) negated. This negates O (dQ, dK and dV) bit for bit, because
// IEEE negation commutes with every step, and leaves the logsumexp unchanged. Outputs that differ
// from that are judged, because kernels may not be deterministic. Throws WrongResult for a provider
// whose outputs do not follow. Restores the inputs.
void require_fresh_outputs(const Audited&);

// The same for a forward pass on another Q and K, with the same V.
void require_fresh_scores(const Audited&);

// The same for a backward pass of several heads on the inputs with their heads rotated
// (case/rotated_heads.h): its outputs are those of the verified run, rotated.
void require_fresh_probabilities(const Audited&);

// Throws WrongResult for a provider whose parts (Session::parts), one after the other, do not give
// the verified outputs after a whole run on poisoned inputs: one of them leaves out what the whole
// run does. Restores the inputs.
void require_complete_parts(const Audited&);

}  // namespace flashbench
