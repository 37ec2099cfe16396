#include "device/nvml.h"

#include "host/shared_library.h"

namespace flashbench {

namespace {

constexpr int kSuccess = 0;
constexpr unsigned kSmClock = 1;  // NVML_CLOCK_SM

}  // namespace

// The entry points used, as nvml.h declares them; nvmlDevice_t is a pointer to a hidden struct.
struct Nvml::Library {
  SharedLibrary file{{"libnvidia-ml.so.1"}};
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_by_pci_bus_id)(const char*, void**) = nullptr;
  int (*clock)(void*, unsigned, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;        // milliwatts
  int (*power_limit)(void*, unsigned*) = nullptr;  // milliwatts
  int (*throttle_reasons)(void*, unsigned long long*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*energy)(void*, unsigned long long*) = nullptr;  // millijoules; from Volta on

  Library() {
    file.find(init, "nvmlInit_v2");
    file.find(shutdown, "nvmlShutdown");
    file.find(device_by_pci_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
    file.find(clock, "nvmlDeviceGetClockInfo");
    file.find(power, "nvmlDeviceGetPowerUsage");
    file.find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    file.find(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    file.find(driver_version, "nvmlSystemGetDriverVersion");
    file.find(energy, "nvmlDeviceGetTotalEnergyConsumption");
  }

  bool complete() const {
    return init != nullptr && shutdown != nullptr && device_by_pci_bus_id != nullptr &&
           clock != nullptr && power != nullptr && power_limit != nullptr &&
           throttle_reasons != nullptr && driver_version != nullptr;
  }
};

Nvml::Nvml(std::unique_ptr<Library> library, void* device)
    : library_(std::move(library)), device_(device) {}

Nvml::~Nvml() {
  library_->shutdown();
}

std::unique_ptr<Nvml> Nvml::open(const std::string& pci_bus_id) {
  auto library = std::make_unique<Library>();
  if (!library->complete() || library->init() != kSuccess) return nullptr;
  void* device = nullptr;
  if (library->device_by_pci_bus_id(pci_bus_id.c_str(), &device) != kSuccess) {
    library->shutdown();
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(library), device));
}

std::optional<DeviceState> Nvml::state() const {
  unsigned mhz = 0, milliwatts = 0;
  unsigned long long reasons = 0;
  if (library_->clock(device_, kSmClock, &mhz) != kSuccess ||
      library_->power(device_, &milliwatts) != kSuccess ||
      library_->throttle_reasons(device_, &reasons) != kSuccess) {
    return std::nullopt;
  }
  return DeviceState{static_cast<double>(mhz), milliwatts * 1e-3, reasons};
}

std::optional<double> Nvml::energy() const {
  unsigned long long millijoules = 0;
  if (library_->energy == nullptr || library_->energy(device_, &millijoules) != kSuccess) {
    return std::nullopt;
  }
  return static_cast<double>(millijoules) * 1e-3;
}

double Nvml::power_limit() const {
  unsigned milliwatts = 0;
  return library_->power_limit(device_, &milliwatts) == kSuccess ? milliwatts * 1e-3 : 0;
}

std::string Nvml::driver_version() const {
  char text[96] = "";
  return library_->driver_version(text, sizeof(text)) == kSuccess ? text : "";
}

}  // namespace flashbench
