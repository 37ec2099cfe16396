// A case set up for its providers: its inputs on host and device, and its oracles.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "case/case_run_options.h"
#include "case/other_scores.h"
#include "case/watch.h"
#include "device/device.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"
#include "plan/config.h"
#include "providers/provider.h"
#include "report/wall_time.h"
#include "verify/oracle.h"

namespace flashbench {

// What a provider's oracle has to allow for.
Storage storage_of(const Provider&, const Problem&);

struct Scene {
  // `storage`: of a provider; the oracle for it is needed in any case. What it refers to must
  // outlive it.
  Scene(const Case&, Device&, const Storage& storage, const CaseRunOptions&, const Watch&,
        PhaseClock&);

  // Judges a provider's outputs by the oracle, and by what else is known about these inputs.
  Verdict judge(const Provider&, HostOutputs&);

  // Inputs of a forward case with other scores, made on first use, and the verdict on outputs for
  // them.
  OtherScores& other_scores();
  Verdict judge_other_scores(const Provider&, HostOutputs&);

  // Where several GPUs share the case, rows are in the memory of the GPU that has them. One alone
  // gets all of them in its own: the links would slow it down.
  DeviceInputs& inputs_of_one();
  DeviceInputs& inputs_of(Session&);
  Problem outputs_of(Session&) const;

  // Throws WrongResult if a provider has changed these inputs, once they are as they were.
  void check_inputs(DeviceInputs&);

  const Case& item;
  Device& device;
  const CaseRunOptions& options;
  const Watch& watch;
  PhaseClock& clock;
  Problem problem;
  HostTensors host;
  std::map<Storage, std::unique_ptr<Oracle>> oracles;
  DeviceInputs inputs;  // of a backward pass with O and the logsumexp of an oracle
  int64_t input_bytes;  // without guard bands
  uint64_t input_hash;

 private:
  // The oracle for providers of this storage, made on first use.
  const Oracle& oracle(const Storage&);

  // A backward pass starts from the exact O and logsumexp, rounded: the same values for every
  // provider.
  Inputs with_exact_forward(const Storage&);

  std::optional<OtherScores> other_scores_;
  std::optional<DeviceInputs> alone_;
  uint64_t alone_hash_ = 0;
};

}  // namespace flashbench
