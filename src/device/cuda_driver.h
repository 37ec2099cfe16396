// Entry points of the CUDA driver, for facts that the runtime does not report. Opened at run time,
// like the driver itself.
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

// The entry points of the driver that the runtime uses. Call only if why_no_cuda() is empty. Throws
// std::runtime_error if the driver lacks one of them.
const CudaDriver& cuda_driver();

}  // namespace flashbench
