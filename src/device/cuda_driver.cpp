#include "device/cuda_driver.h"

#include <stdexcept>
#include <string>

#include "host/shared_library.h"

namespace flashbench {

namespace {

class Driver {
 public:
  Driver() {
    file_.find(driver_.context_current, "cuCtxGetCurrent");
    file_.find(driver_.graph_kernel_params, "cuGraphKernelNodeGetParams_v2");
    file_.find(driver_.kernel_function, "cuKernelGetFunction");
    file_.find(driver_.function_name, "cuFuncGetName");
    file_.find(driver_.function_attribute, "cuFuncGetAttribute");
    file_.find(driver_.occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    file_.find(driver_.allocation_granularity, "cuMemGetAllocationGranularity");
    file_.find(driver_.reserve_addresses, "cuMemAddressReserve");
    file_.find(driver_.free_addresses, "cuMemAddressFree");
    file_.find(driver_.create_memory, "cuMemCreate");
    file_.find(driver_.release_memory, "cuMemRelease");
    file_.find(driver_.map_memory, "cuMemMap");
    file_.find(driver_.unmap_memory, "cuMemUnmap");
    file_.find(driver_.set_access, "cuMemSetAccess");
    file_.find(driver_.error_name, "cuGetErrorName");
    file_.find(driver_.error_string, "cuGetErrorString");
    if (!file_.error().empty()) throw std::runtime_error("the CUDA driver: " + file_.error());
  }

  const CudaDriver& entry_points() const { return driver_; }

 private:
  SharedLibrary file_{{"libcuda.so.1"}};
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
