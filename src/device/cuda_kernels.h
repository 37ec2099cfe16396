// The names and resources of the kernels of a captured launch, whoever compiled them.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "device/device.h"

namespace flashbench {

// In capture order, without copies and fills.
std::vector<KernelFacts> kernel_facts(cudaGraph_t);

// A demangled name without its parameters and its return type:
// "void a::b<64, (int)1>(float*, int)" -> "a::b<64, (int)1>".
std::string kernel_name(const std::string& mangled);

}  // namespace flashbench
