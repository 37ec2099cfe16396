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

}  // namespace flashbench
