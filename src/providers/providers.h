// One function for each provider; list.cpp calls them all.
#pragma once

#include <memory>

#include "providers/provider.h"

namespace flashbench {

// Standard attention on the CPU: BLAS products with S and P in memory.
std::unique_ptr<Provider> make_naive_provider();

// The first of our own kernels for this kind of device that supports the problem.
std::unique_ptr<Provider> make_tiled_provider(DeviceKind device);

}  // namespace flashbench
