#include "report/environment.h"

#include <fmt/format.h>
#include <hwy/base.h>
#include <hwy/highway.h>
#include <sys/utsname.h>

#include <ctime>
#include <fstream>

#include "build_info.h"
#include "device/blas.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

std::string distribution() {
  std::ifstream file("/etc/os-release");
  const std::string key = "PRETTY_NAME=\"";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return line.substr(key.size(), line.size() - key.size() - 1);
  }
  return "unknown";
}

// The system, without the machine's name and its kernel's build, so that results can be shared.
Json system_json() {
  utsname name{};
  uname(&name);
  return {{"os", distribution()}, {"kernel", name.sysname}, {"machine", name.machine}};
}

Json libraries_json() {
  return {{"openblas", blas::configuration()},
          {"openblas_core", blas::core()},
          {"highway", fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH)}};
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[sizeof("2026-11-21T09:30:00Z")];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

Json meta_json(const std::vector<std::string>& argv) {
  const BuildInfo& build = build_info();
  return {
      {"tool", "flashbench"},
      {"version", build.version},
      {"git_commit", build.git_commit},
      {"git_dirty", build.git_dirty},
      {"compiler", build.compiler},
      {"build_type", build.build_type},
      {"sanitizers", build.sanitizers},
      {"argv", argv},
      {"started", utc_now()},
      {"flop_rule",
       "exact unmasked pairs: 4*pairs*head_dim forward, 10*pairs*head_dim backward, per query "
       "head; tflops_convention: FlashAttention's 4*batch*q_heads*q_len*kv_len*head_dim, halved "
       "if causal, x2.5 backward"},
      {"byte_rule",
       "compulsory: each input read once, each output written once; requested: reads and writes "
       "of the provider's own loops, whatever cache serves them"}};
}

Json device_json(const Device& device) {
  const DeviceInfo& info = device.info();
  Json json{{"kind", name(info.kind)},
            {"index", info.index},
            {"name", info.name},
            {"instructions", info.instructions},
            {"threads", info.threads},
            {"memory_bytes", info.memory_bytes},
            {"last_level_cache_bytes", info.last_level_cache_bytes},
            {"cold_cache_reads_bytes", device.eviction_bytes()},
            {"system", system_json()},
            {"libraries", libraries_json()}};
  for (const auto& [key, value] : device.facts()) json[key] = value;
  return json;
}

Json kind_of_device(Json device) {
  for (const char* of_the_machine : {"index", "memory_bytes"}) device.erase(of_the_machine);
  return device;
}

}  // namespace flashbench
