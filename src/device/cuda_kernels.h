// What the kernels of a captured launch are and occupy, whoever compiled them.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "device/device.h"

namespace flashbench {

// In the order in which they were captured; copies and fills are left out.
std::vector<KernelFacts> kernel_facts(cudaGraph_t);

// A demangled name without its parameters and its return type:
// "void a::b<64, (int)1>(float*, int)" -> "a::b<64, (int)1>".
std::string kernel_name(const std::string& mangled);

}  // namespace flashbench
