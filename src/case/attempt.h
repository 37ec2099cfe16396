// One provider on one case, from its preparation to its last check.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "case/scene.h"
#include "report/record.h"

namespace flashbench {

struct Attempt {
  const Provider* provider = nullptr;
  int index = 0;  // index in the list
  Record record;
  std::unique_ptr<Session> session;
  DeviceInputs* inputs = nullptr;  // the scene's
  std::unique_ptr<DeviceOutputs> outputs;
  std::unique_ptr<DeviceOutputs> outputs_of_parts;  // of runs that are not whole
  std::unique_ptr<HostOutputs> verified_outputs;
  uint64_t verified_hash = 0;  // of the device's outputs, before they were copied
  int64_t poison_like = 0;     // elements of the outputs that are NaN with the bits of poison

  bool alive() const { return session != nullptr; }

  // Ends it with this status and reason, without times or a verdict that its outputs passed.
  void end(Status, std::string reason);

  // Runs it whole, on its inputs and outputs.
  void run();
};

// Does a part of the attempt's work in a phase; an exception becomes the attempt's status. The
// provider counts as at work until its session has ended.
void guarded(Attempt&, const Scene&, const char* phase, const std::function<void()>& work);

// Outputs on the device as the attempt's session writes them.
std::unique_ptr<DeviceOutputs> make_outputs(const Attempt&, const Scene&);

// Copies outputs of the attempt, in a phase of its own. Throws WrongResult if a guard band was
// written to.
HostOutputs take_outputs(const DeviceOutputs&, const Scene&);

// Throws WrongResult unless it passed.
void require_passed(const Verdict&);

}  // namespace flashbench
