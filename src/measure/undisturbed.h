// Which samples were taken without waiting for a core.
#pragma once

#include <vector>

#include "measure/sampler.h"

namespace flashbench {

// For each sample. All, where the machine was quiet: threads that wait then wait for each other,
// which is the work's own affair. All, too, where nothing is known of the load or of the waits.
std::vector<bool> undisturbed(const Measurement&);

// The load was heavy, and the machine does not say which samples had to wait.
bool is_blind(const Measurement&);

}  // namespace flashbench
