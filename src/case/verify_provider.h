// Checks of one provider on a case: before it is timed, and at the end.
#pragma once

#include "case/attempt.h"

namespace flashbench {

// Prepares the provider, runs it once and judges what it wrote. `index`: in the list of providers.
Attempt verify_provider(const Provider&, int index, Scene&);

// The last checks of a provider that is still alive (case/audits.h).
void audit(Attempt&, Scene&);

}  // namespace flashbench
