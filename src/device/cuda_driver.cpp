#include "device/cuda_driver.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace flashbench {

namespace {

class Driver {
 public:
  Driver() : handle_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    find(driver_.context_current, "cuCtxGetCurrent");
    find(driver_.graph_kernel_params, "cuGraphKernelNodeGetParams_v2");
    find(driver_.kernel_function, "cuKernelGetFunction");
    find(driver_.function_name, "cuFuncGetName");
    find(driver_.function_attribute, "cuFuncGetAttribute");
    find(driver_.occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    find(driver_.allocation_granularity, "cuMemGetAllocationGranularity");
    find(driver_.reserve_addresses, "cuMemAddressReserve");
    find(driver_.free_addresses, "cuMemAddressFree");
    find(driver_.create_memory, "cuMemCreate");
    find(driver_.release_memory, "cuMemRelease");
    find(driver_.map_memory, "cuMemMap");
    find(driver_.unmap_memory, "cuMemUnmap");
    find(driver_.set_access, "cuMemSetAccess");
    find(driver_.error_name, "cuGetErrorName");
    find(driver_.error_string, "cuGetErrorString");
  }

  const CudaDriver& entry_points() const { return driver_; }

 private:
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr) {
      throw std::runtime_error(std::string("the CUDA driver has no ") + name);
    }
  }

  void* handle_;
  CudaDriver driver_;
};

}  // namespace

const CudaDriver& cuda_driver() {
  static const Driver instance;
  return instance.entry_points();
}

void check_cuda_driver(CUresult status, const char* call, const char* file, int line) {
  if (status == CUDA_SUCCESS) return;
  const char *name = nullptr, *text = nullptr;
  cuda_driver().error_name(status, &name);
  cuda_driver().error_string(status, &text);
  const auto known = [](const char* what) { return std::string(what == nullptr ? "?" : what); };
  throw CudaError(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                  known(name) + ", " + known(text));
}

}  // namespace flashbench
