#include "host/resident.h"

#include <fstream>
#include <string_view>

#include "host/proc.h"

namespace flashbench {

namespace {

int64_t status_bytes(std::string_view field) {
  return proc_bytes("/proc/self/status", field);
}

}  // namespace

int64_t resident_bytes() {
  return status_bytes("VmRSS:");
}

int64_t peak_resident_bytes() {
  return status_bytes("VmHWM:");
}

void reset_peak_resident() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace flashbench
