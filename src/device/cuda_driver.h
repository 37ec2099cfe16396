// The CUDA driver's own entry points, for what the runtime does not tell; opened at run time like
// the driver itself.
#pragma once

#include <cuda.h>

namespace flashbench {

struct CudaDriver {
  decltype(&cuCtxGetCurrent) context_current = nullptr;
  decltype(&cuGraphKernelNodeGetParams) graph_kernel_params = nullptr;
  decltype(&cuKernelGetFunction) kernel_function = nullptr;
  decltype(&cuFuncGetName) function_name = nullptr;
  decltype(&cuFuncGetAttribute) function_attribute = nullptr;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) occupancy = nullptr;
};

// Of the driver that the runtime uses; only where why_no_cuda() is empty. Throws
// std::runtime_error for a driver that lacks one of them.
const CudaDriver& cuda_driver();

}  // namespace flashbench
