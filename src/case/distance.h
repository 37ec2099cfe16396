// The distance between the outputs of two providers.
#pragma once

#include "device/device_tensors.h"
#include "host/thread_pool.h"
#include "report/record.h"

namespace flashbench {

// Compares O, or dQ, dK and dV; ignores elements that are not finite in either.
Distance distance(const Problem&, HostOutputs& a, HostOutputs& b, ThreadPool&);

}  // namespace flashbench
