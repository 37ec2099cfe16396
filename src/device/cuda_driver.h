// Entry points of the CUDA driver, for what the runtime does not have: facts about kernels, and
// memory whose addresses and pages are apart. Opened at run time, like the driver itself.
#pragma once

#include <cuda.h>

#include "device/cuda_call.h"

namespace flashbench {

struct CudaDriver {
  decltype(&cuCtxGetCurrent) context_current = nullptr;
  decltype(&cuGraphKernelNodeGetParams) graph_kernel_params = nullptr;
  decltype(&cuKernelGetFunction) kernel_function = nullptr;
  decltype(&cuFuncGetName) function_name = nullptr;
  decltype(&cuFuncGetAttribute) function_attribute = nullptr;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) occupancy = nullptr;
  decltype(&cuMemGetAllocationGranularity) allocation_granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve_addresses = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) create_memory = nullptr;
  decltype(&cuMemRelease) release_memory = nullptr;
  decltype(&cuMemMap) map_memory = nullptr;
  decltype(&cuMemUnmap) unmap_memory = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuGetErrorName) error_name = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;
};

// The entry points of the driver that the runtime uses. Call only if why_no_cuda() is empty. Throws
// std::runtime_error if the driver lacks one of them.
const CudaDriver& cuda_driver();

// Throws CudaError, with the driver's own text.
void check_cuda_driver(CUresult, const char* call, const char* file, int line);

}  // namespace flashbench

// Calls an entry point. Throws CudaError.
#define FLASHBENCH_CUDA_DRIVER(entry_point, ...)                                        \
  ::flashbench::check_cuda_driver(::flashbench::cuda_driver().entry_point(__VA_ARGS__), \
                                  #entry_point, __FILE__, __LINE__)
