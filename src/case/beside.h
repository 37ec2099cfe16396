// What is timed beside the providers of a case: the GEMM, what bounds a case whose limit is memory,
// and what several devices, or rounded inputs, are to be faster than.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "case/scene.h"
#include "measure/ceilings.h"
#include "measure/round_ceilings.h"
#include "report/record.h"

namespace flashbench {

class Beside {
 public:
  // `several_devices`: whether any of the providers shares the work. Without memory for all of
  // them, some are not timed.
  Beside(Scene&, GemmCeiling&, bool several_devices);

  std::vector<Contender> contenders() const;

  // Adds what was measured; `timings` are those of contenders().
  void add_to(Record&, std::span<const Timing> timings) const;

 private:
  void add_same_work(Scene&);
  void add_unrounded(Scene&);

  GemmCeiling& gemm_;
  std::optional<DeviceOutputs> outputs_, shared_outputs_, unrounded_outputs_;
  std::unique_ptr<Session> share_, unrounded_;
  std::vector<CeilingWork> works_;
};

}  // namespace flashbench
