#include "device/cupti_library.h"

#include <fmt/format.h>

#include "host/shared_library.h"

namespace flashbench {

namespace {

// The library's name has the major version of the toolkit.
constexpr int kMajor = CUPTI_API_VERSION / 10000;

// On the loader's path, then in the toolkit that this was built with: beside its other libraries,
// or in a folder of its own.
std::vector<std::string> places(const std::string& name) {
  return {name, FLASHBENCH_CUDA_LIBRARY_DIR "/" + name,
          FLASHBENCH_CUDA_LIBRARY_DIR "/../extras/CUPTI/lib64/" + name};
}

struct Opened {
  CuptiLibrary library;
  // CUPTI opens this library by its bare name. The loader finds it only if it is already open or on
  // the loader's path.
  SharedLibrary metrics{places("libnvperf_host.so")};
  SharedLibrary file{places(fmt::format("libcupti.so.{}", kMajor))};

  Opened() {
    file.find(library.version, "cuptiGetVersion");
    file.find(library.result_string, "cuptiGetResultString");
    file.find(library.host_initialize, "cuptiProfilerHostInitialize");
    file.find(library.host_deinitialize, "cuptiProfilerHostDeinitialize");
    file.find(library.host_supported_chips, "cuptiProfilerHostGetSupportedChips");
    file.find(library.host_base_metrics, "cuptiProfilerHostGetBaseMetrics");
    file.find(library.host_add_metrics, "cuptiProfilerHostConfigAddMetrics");
    file.find(library.host_config_image_size, "cuptiProfilerHostGetConfigImageSize");
    file.find(library.host_config_image, "cuptiProfilerHostGetConfigImage");
    file.find(library.host_passes, "cuptiProfilerHostGetNumOfPasses");
    file.find(library.host_evaluate, "cuptiProfilerHostEvaluateToGpuValues");
    file.find(library.initialize, "cuptiProfilerInitialize");
    file.find(library.device_supported, "cuptiProfilerDeviceSupported");
    file.find(library.chip_name, "cuptiDeviceGetChipName");
    file.find(library.counter_availability, "cuptiProfilerGetCounterAvailability");
    file.find(library.enable, "cuptiRangeProfilerEnable");
    file.find(library.disable, "cuptiRangeProfilerDisable");
    file.find(library.counter_data_size, "cuptiRangeProfilerGetCounterDataSize");
    file.find(library.counter_data_initialize, "cuptiRangeProfilerCounterDataImageInitialize");
    file.find(library.set_config, "cuptiRangeProfilerSetConfig");
    file.find(library.start, "cuptiRangeProfilerStart");
    file.find(library.stop, "cuptiRangeProfilerStop");
    file.find(library.push_range, "cuptiRangeProfilerPushRange");
    file.find(library.pop_range, "cuptiRangeProfilerPopRange");
    file.find(library.decode, "cuptiRangeProfilerDecodeData");
    file.find(library.counter_data_info, "cuptiRangeProfilerGetCounterDataInfo");
  }
};

const Opened& opened() {
  static const Opened instance;
  return instance;
}

}  // namespace

std::optional<std::string> why_no_cupti() {
  if (opened().file.error().empty()) return std::nullopt;
  return fmt::format("CUPTI {} cannot be opened: {}", kMajor, opened().file.error());
}

const CuptiLibrary& cupti_library() {
  return opened().library;
}

}  // namespace flashbench
