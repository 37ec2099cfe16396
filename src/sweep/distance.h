// How far the outputs of two providers lie apart.
#pragma once

#include "device/device_tensors.h"
#include "device/thread_pool.h"
#include "report/record.h"

namespace flashbench {

// Over O, or dQ, dK and dV; elements that are not finite in either do not count.
Distance distance(const Problem&, HostOutputs& a, HostOutputs& b, ThreadPool&);

}  // namespace flashbench
