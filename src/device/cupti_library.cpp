#include "device/cupti_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace flashbench {

namespace {

// The library's name has the major version of the toolkit.
constexpr int kMajor = CUPTI_API_VERSION / 10000;

// Stays open for as long as the process lives.
struct Opened {
  CuptiLibrary library;
  std::string error;

  Opened() {
    void* handle = open();
    if (handle == nullptr) return;
    error.clear();
    find(handle, library.version, "cuptiGetVersion");
    find(handle, library.result_string, "cuptiGetResultString");
    find(handle, library.host_initialize, "cuptiProfilerHostInitialize");
    find(handle, library.host_deinitialize, "cuptiProfilerHostDeinitialize");
    find(handle, library.host_supported_chips, "cuptiProfilerHostGetSupportedChips");
    find(handle, library.host_base_metrics, "cuptiProfilerHostGetBaseMetrics");
    find(handle, library.host_add_metrics, "cuptiProfilerHostConfigAddMetrics");
    find(handle, library.host_config_image_size, "cuptiProfilerHostGetConfigImageSize");
    find(handle, library.host_config_image, "cuptiProfilerHostGetConfigImage");
    find(handle, library.host_passes, "cuptiProfilerHostGetNumOfPasses");
    find(handle, library.host_evaluate, "cuptiProfilerHostEvaluateToGpuValues");
    find(handle, library.initialize, "cuptiProfilerInitialize");
    find(handle, library.device_supported, "cuptiProfilerDeviceSupported");
    find(handle, library.chip_name, "cuptiDeviceGetChipName");
    find(handle, library.counter_availability, "cuptiProfilerGetCounterAvailability");
    find(handle, library.enable, "cuptiRangeProfilerEnable");
    find(handle, library.disable, "cuptiRangeProfilerDisable");
    find(handle, library.counter_data_size, "cuptiRangeProfilerGetCounterDataSize");
    find(handle, library.counter_data_initialize, "cuptiRangeProfilerCounterDataImageInitialize");
    find(handle, library.set_config, "cuptiRangeProfilerSetConfig");
    find(handle, library.start, "cuptiRangeProfilerStart");
    find(handle, library.stop, "cuptiRangeProfilerStop");
    find(handle, library.push_range, "cuptiRangeProfilerPushRange");
    find(handle, library.pop_range, "cuptiRangeProfilerPopRange");
    find(handle, library.decode, "cuptiRangeProfilerDecodeData");
    find(handle, library.counter_data_info, "cuptiRangeProfilerGetCounterDataInfo");
  }

 private:
  // By the loader's path, then where the toolkit had it that this was built with: beside the other
  // libraries, or in a folder of its own.
  void* open() {
    const std::string name = fmt::format("libcupti.so.{}", kMajor);
    for (const std::string& place :
         {name, FLASHBENCH_CUDA_LIBRARY_DIR "/" + name,
          FLASHBENCH_CUDA_LIBRARY_DIR "/../extras/CUPTI/lib64/" + name}) {
      if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
      if (error.empty()) error = dlerror();
    }
    return nullptr;
  }

  template <typename Function>
  void find(void* handle, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) error = fmt::format("it has no {}", name);
  }
};

const Opened& opened() {
  static const Opened instance;
  return instance;
}

}  // namespace

std::optional<std::string> why_no_cupti() {
  if (opened().error.empty()) return std::nullopt;
  return fmt::format("CUPTI {} cannot be opened: {}", kMajor, opened().error);
}

const CuptiLibrary& cupti_library() {
  return opened().library;
}

}  // namespace flashbench
