#include "measure/cupti_counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "device/cuda_driver.h"

namespace flashbench {

namespace {

constexpr size_t kMostLaunches = 256;  // per run; more are an error

CounterStatus status_of(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
      return CounterStatus::denied;
    case CUPTI_ERROR_INVALID_CHIP_NAME:
    case CUPTI_ERROR_NOT_SUPPORTED:
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED:
      return CounterStatus::unsupported_chip;
    default:
      return CounterStatus::failed;
  }
}

std::string advice(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return ": run as root or with CAP_SYS_ADMIN, or set the driver to allow it to all users "
             "(NVreg_RestrictProfilingToAdminUsers=0)";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return ": the hypervisor does not allow it";
    case CUPTI_ERROR_HARDWARE_BUSY:
      return ": another profiler uses the counters";
    default:
      return "";
  }
}

void check(const CuptiLibrary& library, CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  library.result_string(result, &text);
  throw CounterError(status_of(result), result,
                     fmt::format("{}: {} ({}){}", call, text != nullptr ? text : "unknown error",
                                 static_cast<int>(result), advice(result)));
}

[[noreturn]] void fail(const std::string& reason) {
  throw CounterError(CounterStatus::failed, 0, reason);
}

// Declares the parameters of a CUPTI call, with their size set and all else 0.
#define FLASHBENCH_CUPTI_PARAMS(type, variable) \
  type variable{};                              \
  variable.structSize = type##_STRUCT_SIZE

std::vector<const char*> pointers(const std::vector<std::string>& names) {
  std::vector<const char*> result;
  for (const std::string& name : names) result.push_back(name.c_str());
  return result;
}

}  // namespace

CuptiChip::CuptiChip(const CuptiLibrary& library, const std::string& chip,
                     const std::vector<uint8_t>& availability)
    : library_(library) {
  FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Host_GetSupportedChips_Params, known);
  check(library_, library_.host_supported_chips(&known), "cuptiProfilerHostGetSupportedChips");
  const std::vector<std::string> chips(known.ppChipNames, known.ppChipNames + known.numChips);
  if (std::find(chips.begin(), chips.end(), chip) == chips.end()) {
    throw CounterError(CounterStatus::unsupported_chip, 0,
                       fmt::format("this CUPTI does not know the chip {}", chip));
  }
  FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params, start);
  start.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  start.pChipName = chip.c_str();
  start.pCounterAvailabilityImage = availability.empty() ? nullptr : availability.data();
  check(library_, library_.host_initialize(&start), "cuptiProfilerHostInitialize");
  host_ = start.pHostObject;
}

CuptiChip::~CuptiChip() {
  FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, params);
  params.pHostObject = host_;
  library_.host_deinitialize(&params);
}

std::vector<std::string> CuptiChip::listed_metrics() const {
  FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Host_GetBaseMetrics_Params, params);
  params.pHostObject = host_;
  params.metricType = CUPTI_METRIC_TYPE_COUNTER;
  check(library_, library_.host_base_metrics(&params), "cuptiProfilerHostGetBaseMetrics");
  return {params.ppMetricNames, params.ppMetricNames + params.numMetrics};
}

std::vector<uint8_t> CuptiChip::config_image(const std::vector<std::string>& metrics) {
  std::vector<const char*> names = pointers(metrics);
  FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
  add.pHostObject = host_;
  add.ppMetricNames = names.data();
  add.numMetrics = names.size();
  check(library_, library_.host_add_metrics(&add), "cuptiProfilerHostConfigAddMetrics");

  FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
  size.pHostObject = host_;
  check(library_, library_.host_config_image_size(&size), "cuptiProfilerHostGetConfigImageSize");

  std::vector<uint8_t> image(size.configImageSize);
  FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, fill);
  fill.pHostObject = host_;
  fill.configImageSize = image.size();
  fill.pConfigImage = image.data();
  check(library_, library_.host_config_image(&fill), "cuptiProfilerHostGetConfigImage");
  return image;
}

int CuptiChip::passes(std::vector<uint8_t>& config_image) const {
  FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, params);
  params.configImageSize = config_image.size();
  params.pConfigImage = config_image.data();
  check(library_, library_.host_passes(&params), "cuptiProfilerHostGetNumOfPasses");
  return static_cast<int>(params.numOfPasses);
}

CounterValues CuptiChip::evaluate(const std::vector<std::string>& metrics,
                                  const std::vector<uint8_t>& counter_data, size_t range) const {
  std::vector<const char*> names = pointers(metrics);
  std::vector<double> values(metrics.size());
  FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, params);
  params.pHostObject = host_;
  params.pCounterDataImage = counter_data.data();
  params.counterDataImageSize = counter_data.size();
  params.rangeIndex = range;
  params.ppMetricNames = names.data();
  params.numMetrics = names.size();
  params.pMetricValues = values.data();
  check(library_, library_.host_evaluate(&params), "cuptiProfilerHostEvaluateToGpuValues");

  CounterValues result;
  for (size_t i = 0; i < metrics.size(); ++i) {
    if (!std::isfinite(values[i]) || values[i] < 0) {
      fail(fmt::format("{} was read as {}", metrics[i], values[i]));
    }
    result.emplace_back(metrics[i], values[i]);
  }
  return result;
}

namespace {

// The metrics to read for one dtype.
struct MetricSet {
  std::vector<std::string> metrics;
  std::unique_ptr<CuptiChip> chip;
  std::vector<uint8_t> config;
  int passes = 0;
};

// Enables the range profiler in a context for its lifetime.
class RangeProfiler {
 public:
  RangeProfiler(const CuptiLibrary& library, const CuptiTarget& target) : library_(library) {
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params, params);
    params.ctx = target.context;
    check(library_, library_.enable(&params), "cuptiRangeProfilerEnable");
    profiler_ = params.pRangeProfilerObject;
  }
  ~RangeProfiler() {
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params, params);
    params.pRangeProfilerObject = profiler_;
    library_.disable(&params);
  }
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;

  void configure(const MetricSet& set, CUpti_ProfilerRange range, size_t most_ranges) {
    std::vector<const char*> names = pointers(set.metrics);
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
    size.pRangeProfilerObject = profiler_;
    size.pMetricNames = names.data();
    size.numMetrics = names.size();
    size.maxNumOfRanges = most_ranges;
    size.maxNumRangeTreeNodes = static_cast<uint32_t>(most_ranges);
    check(library_, library_.counter_data_size(&size), "cuptiRangeProfilerGetCounterDataSize");

    counter_data_.assign(size.counterDataSize, 0);
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, fill);
    fill.pRangeProfilerObject = profiler_;
    fill.counterDataSize = counter_data_.size();
    fill.pCounterData = counter_data_.data();
    check(library_, library_.counter_data_initialize(&fill),
          "cuptiRangeProfilerCounterDataImageInitialize");

    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params, config);
    config.pRangeProfilerObject = profiler_;
    config.configSize = set.config.size();
    config.pConfig = set.config.data();
    config.counterDataImageSize = counter_data_.size();
    config.pCounterDataImage = counter_data_.data();
    config.range = range;
    config.replayMode = CUPTI_UserReplay;
    config.maxRangesPerPass = most_ranges;
    config.numNestingLevels = 1;
    config.minNestingLevel = 1;
    config.passIndex = 0;
    config.targetNestingLevel = 1;
    check(library_, library_.set_config(&config), "cuptiRangeProfilerSetConfig");
  }

  void start() {
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params, params);
    params.pRangeProfilerObject = profiler_;
    check(library_, library_.start(&params), "cuptiRangeProfilerStart");
  }
  // Returns whether that was the last pass.
  bool stop() {
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params, params);
    params.pRangeProfilerObject = profiler_;
    check(library_, library_.stop(&params), "cuptiRangeProfilerStop");
    return params.isAllPassSubmitted != 0;
  }
  void push() {
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_PushRange_Params, params);
    params.pRangeProfilerObject = profiler_;
    params.pRangeName = "run";
    check(library_, library_.push_range(&params), "cuptiRangeProfilerPushRange");
  }
  void pop() {
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_PopRange_Params, params);
    params.pRangeProfilerObject = profiler_;
    check(library_, library_.pop_range(&params), "cuptiRangeProfilerPopRange");
  }

  // The ranges of all passes, in order.
  std::vector<CounterValues> values(const MetricSet& set) {
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params, decode);
    decode.pRangeProfilerObject = profiler_;
    check(library_, library_.decode(&decode), "cuptiRangeProfilerDecodeData");
    if (decode.numOfRangeDropped != 0) {
      fail(fmt::format("CUPTI dropped {} ranges", decode.numOfRangeDropped));
    }
    FLASHBENCH_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = counter_data_.data();
    info.counterDataImageSize = counter_data_.size();
    check(library_, library_.counter_data_info(&info), "cuptiRangeProfilerGetCounterDataInfo");

    std::vector<CounterValues> ranges;
    for (size_t i = 0; i < info.numTotalRanges; ++i) {
      ranges.push_back(set.chip->evaluate(set.metrics, counter_data_, i));
    }
    return ranges;
  }

 private:
  const CuptiLibrary& library_;
  CUpti_RangeProfiler_Object* profiler_ = nullptr;
  std::vector<uint8_t> counter_data_;
};

class CuptiReader final : public CounterReader {
 public:
  CuptiReader(const CuptiLibrary& library, const CuptiTarget& target)
      : library_(library), target_(target) {
    uint32_t version = 0;
    library_.version(&version);
    state_.cupti = static_cast<int>(version);
    try {
      initialize();
      state_.chip = chip_name();
      require_supported();
      availability_ = availability();
      metric_set(Dtype::bf16);
      const RangeProfiler profiler(library_, target_);  // fails for a user without permission
      state_.status = CounterStatus::ok;
    } catch (const CounterError& error) {
      state_.status = error.status;
      state_.code = error.code;
      state_.reason = error.what();
    }
  }

  const CounterState& state() const override { return state_; }
  int passes(Dtype dtype) override { return metric_set(dtype).passes; }

  CounterValues count(Dtype dtype, const Launch& before, const Launch& work) override {
    const MetricSet& set = metric_set(dtype);
    RangeProfiler profiler(library_, target_);
    profiler.configure(set, CUPTI_UserRange, 1);
    for_passes(profiler, set, before, [&] {
      profiler.push();
      work();
      target_.synchronize();
      profiler.pop();
    });
    const std::vector<CounterValues> ranges = profiler.values(set);
    if (ranges.size() != 1)
      fail(fmt::format("expected 1 range from CUPTI, found {}", ranges.size()));
    return ranges.front();
  }

  std::vector<CounterValues> count_launches(Dtype dtype, const Launch& before,
                                            const Launch& work) override {
    const MetricSet& set = metric_set(dtype);
    RangeProfiler profiler(library_, target_);
    profiler.configure(set, CUPTI_AutoRange, kMostLaunches);
    for_passes(profiler, set, before, [&] {
      work();
      target_.synchronize();
    });
    return profiler.values(set);
  }

 private:
  void initialize() {
    FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params, params);
    const CUptiResult result = library_.initialize(&params);
    if (result == CUPTI_ERROR_UNKNOWN || result == CUPTI_ERROR_NOT_INITIALIZED) {
      throw CounterError(CounterStatus::no_driver, result,
                         "cuptiProfilerInitialize: it finds no driver that it can use");
    }
    check(library_, result, "cuptiProfilerInitialize");
  }

  std::string chip_name() {
    FLASHBENCH_CUPTI_PARAMS(CUpti_Device_GetChipName_Params, params);
    params.deviceIndex = static_cast<size_t>(target_.device_index);
    check(library_, library_.chip_name(&params), "cuptiDeviceGetChipName");
    return params.pChipName;
  }

  // Throws if CUPTI cannot profile this device. CUPTI reports each reason separately.
  void require_supported() {
    FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_DeviceSupported_Params, params);
    params.cuDevice = target_.device_index;
    params.api = CUPTI_PROFILER_RANGE_PROFILING;
    check(library_, library_.device_supported(&params), "cuptiProfilerDeviceSupported");
    if (params.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) return;
    const auto refuse = [&](CUpti_Profiler_Support_Level level, CounterStatus status,
                            const char* why) {
      if (level == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) return;
      throw CounterError(status, 0, fmt::format("CUPTI cannot count here: {}", why));
    };
    using enum CounterStatus;
    refuse(params.architecture, unsupported_chip, "the GPU's architecture is not supported");
    refuse(params.cmp, unsupported_chip, "the GPU is a mining processor");
    refuse(params.sli, unsupported_chip, "SLI is on");
    refuse(params.vGpu, denied, "the virtual GPU does not allow profiling");
    refuse(params.confidentialCompute, denied, "confidential computing is on");
    refuse(params.wsl, denied, "this is the Windows Subsystem for Linux");
    refuse(params.isSupported, failed, "CUPTI gives no reason");
  }

  std::vector<uint8_t> availability() {
    FLASHBENCH_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params, params);
    params.ctx = target_.context;
    check(library_, library_.counter_availability(&params), "cuptiProfilerGetCounterAvailability");
    std::vector<uint8_t> image(params.counterAvailabilityImageSize);
    params.pCounterAvailabilityImage = image.data();
    check(library_, library_.counter_availability(&params), "cuptiProfilerGetCounterAvailability");
    return image;
  }

  const MetricSet& metric_set(Dtype dtype) {
    const auto known = sets_.find(dtype);
    if (known != sets_.end()) return known->second;
    MetricSet set;
    set.chip = std::make_unique<CuptiChip>(library_, state_.chip, availability_);
    set.metrics = wanted_metrics(set.chip->listed_metrics(), dtype);
    if (set.metrics.empty()) {
      throw CounterError(CounterStatus::unsupported_chip, 0,
                         fmt::format("CUPTI lists none of the metrics for {}", state_.chip));
    }
    set.config = set.chip->config_image(set.metrics);
    set.passes = set.chip->passes(set.config);
    return sets_.emplace(dtype, std::move(set)).first->second;
  }

  template <typename Counted>
  void for_passes(RangeProfiler& profiler, const MetricSet& set, const Launch& before,
                  const Counted& counted) {
    for (int pass = 1;; ++pass) {
      before();
      target_.synchronize();
      profiler.start();
      counted();
      if (profiler.stop()) return;
      if (pass > set.passes) fail(fmt::format("CUPTI needs more than {} passes", set.passes));
    }
  }

  const CuptiLibrary& library_;
  CuptiTarget target_;
  CounterState state_;
  std::vector<uint8_t> availability_;
  std::map<Dtype, MetricSet> sets_;
};

}  // namespace

std::unique_ptr<CounterReader> make_cupti_reader(const CuptiLibrary& library,
                                                 const CuptiTarget& target) {
  return std::make_unique<CuptiReader>(library, target);
}

std::unique_ptr<CounterReader> make_cuda_counter_reader(Device& device) {
  if (const auto why = why_no_cupti()) {
    return make_no_counter_reader({.status = CounterStatus::no_library, .reason = *why});
  }
  CuptiTarget target{.device_index = device.info().index,
                     .synchronize = [&device] { device.synchronize(); }};
  cuda_driver().context_current(&target.context);
  return make_cupti_reader(cupti_library(), target);
}

}  // namespace flashbench
