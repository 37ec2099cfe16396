// The host as a device: aligned memory (in huge pages if the system grants them), a thread pool,
// the monotonic clock.
#include <hwy/targets.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "attention/tensors.h"
#include "device/blas.h"
#include "device/device.h"
#include "host/core_seconds.h"
#include "host/proc.h"
#include "host/resident.h"

namespace flashbench {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kCacheLine = 64;

// Reading kMaxEvictionBytes evicts earlier data from a last-level cache of up to half that size.
// For larger caches, shared by many cores, every cold sample would have to read gigabytes.
constexpr int64_t kMinEvictionBytes = int64_t{64} << 20;
constexpr int64_t kMaxEvictionBytes = int64_t{1} << 30;

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

int64_t meminfo(std::string_view field) {
  return proc_bytes("/proc/meminfo", field);
}

std::string best_simd_target() {
  const int64_t supported = hwy::SupportedTargets();
  return hwy::TargetName(supported & -supported);  // the lowest bit is the best target
}

class HostDevice final : public Device {
 public:
  explicit HostDevice(int threads) : pool_(threads > 0 ? threads : usable_cpus()) {
    info_.kind = DeviceKind::cpu;
    info_.name = cpu_name();
    info_.instructions = best_simd_target();
    info_.threads = pool_.threads();
    info_.memory_bytes = meminfo("MemTotal:");
    info_.last_level_cache_bytes = std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  }

  const DeviceInfo& info() const override { return info_; }
  Stream stream() override { return {.threads = &pool_, .cuda = nullptr}; }
  void synchronize() override {}

  void copy_to_device(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void poison(void* data, size_t bytes) override { std::memset(data, kPoisonByte, bytes); }

  // Wakes the threads first, which can take longer than a short problem: between the kernels of an
  // engine they are awake.
  double time(const std::function<void()>& launch) override {
    pool_.parallel_for(pool_.threads(), [](int64_t, int) {});
    const auto start = std::chrono::steady_clock::now();
    launch();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  std::optional<double> ran_seconds() override { return process_ran_seconds(getpid()); }
  std::optional<double> waited_seconds() override { return process_waited_seconds(getpid()); }

  void evict_caches() override {
    if (eviction_.empty()) eviction_.assign(static_cast<size_t>(eviction_bytes()) / 8, 1);
    const auto chunk = static_cast<int64_t>(eviction_.size()) / pool_.threads();
    std::atomic<uint64_t> total{0};
    pool_.parallel_for(pool_.threads(), [&](int64_t item, int) {
      uint64_t sum = 0;
      for (int64_t i = item * chunk; i < (item + 1) * chunk; ++i) {
        sum += eviction_[static_cast<size_t>(i)];
      }
      total.fetch_add(sum, std::memory_order_relaxed);  // keeps the reads alive
    });
    if (total.load() == 0) throw std::logic_error("the eviction buffer was not read");
  }

  void watch_growth() override {
    reset_peak_resident();
    resident_before_ = resident_bytes();
  }
  int64_t growth() override { return peak_resident_bytes() - resident_before_; }

  int64_t eviction_bytes() const override {
    return std::clamp(2 * info_.last_level_cache_bytes, kMinEvictionBytes, kMaxEvictionBytes);
  }

 protected:
  // First asks the system how much is left: Linux grants more memory than it has, and kills the
  // process that touches it.
  void* raw_allocate(size_t bytes) override {
    if (static_cast<int64_t>(bytes) > meminfo("MemAvailable:")) return nullptr;
    const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kCacheLine;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* data = std::aligned_alloc(alignment, rounded);
    if (data != nullptr && alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
    return data;
  }
  void raw_free(void* data) override { std::free(data); }

 private:
  ThreadPool pool_;
  DeviceInfo info_;
  std::vector<uint64_t> eviction_;
  int64_t resident_before_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_host_device(int threads) {
  if (const auto why = blas::why_none()) throw NoDevice(*why);
  auto device = std::make_unique<HostDevice>(threads);
  if (const auto why = blas::why_no_room(device->info().threads)) throw NoDevice(*why);
  return device;
}

}  // namespace flashbench
