// Times the providers of a case in the same rounds.
#pragma once

#include <cstdint>
#include <vector>

#include "case/attempt.h"
#include "measure/ceilings.h"

namespace flashbench {

// Times those that are alive, with their parts and what is timed beside them; verifies the outputs
// of their last timed runs. What a provider does wrong becomes its status. `seed`: of the order in
// the rounds.
void time_together(std::vector<Attempt>&, Scene&, GemmCeiling&, uint64_t seed);

}  // namespace flashbench
