// Finds the samples that were taken without waiting for a core.
#pragma once

#include <vector>

#include "measure/sampler.h"

namespace flashbench {

// One flag per sample. All are true if the machine was quiet: threads that wait then wait for each
// other, which belongs to the work. All are also true if the load or the waits are unknown.
std::vector<bool> undisturbed(const Measurement&);

// Whether the load was heavy, but the machine does not report which samples had to wait.
bool is_blind(const Measurement&);

}  // namespace flashbench
