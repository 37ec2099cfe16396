// A device that runs kernels: its memory (tracked), its stream and its clock. The host implements
// it in host_device.cpp; a build with CUDA adds cuda_device.cpp, one without cuda_none.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/thread_pool.h"

namespace flashbench {

enum class DeviceKind { cpu, cuda };
std::string_view name(DeviceKind);

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  std::string name;            // the processor's own, e.g. "Intel(R) Xeon(R) Processor"
  std::string instructions;    // the best SIMD target that Highway knows for it, or "sm_90"
  int compute_capability = 0;  // 10 * major + minor on a GPU, e.g. 90
  int threads = 0;             // CPU threads used, or streaming multiprocessors
  int64_t memory_bytes = 0;
  int64_t last_level_cache_bytes = 0;
  int64_t shared_memory_bytes = 0;  // that one thread block can have, on a GPU
};

// Where a kernel's work goes: the pool on a CPU, a stream (cudaStream_t) on a GPU, whose pool is
// for what the host does beside it.
struct Stream {
  ThreadPool* threads = nullptr;
  void* cuda = nullptr;
};

// What a GPU says of itself right after a sample. Reasons are NVML's bits; kSlowing are those that
// mean the clock was held down (power cap, heat, power brake), not merely that the GPU was idle.
struct DeviceState {
  double sm_mhz = 0;
  double power_w = 0;
  uint64_t throttle_reasons = 0;

  static constexpr uint64_t kSlowing = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
};

// A launch that is made again and again: on a GPU a graph where it is of several kernels.
struct Replay {
  std::function<void()> launch;
  int graph_nodes = 0;                                // 0: launched as it is
  std::optional<double> host_seconds = std::nullopt;  // what the host takes to launch it, without
                                                      // a graph; empty where it does the work
};

// A kernel as it was compiled for this GPU, and what it occupies of a multiprocessor.
struct KernelFacts {
  std::string name;
  int64_t blocks = 0;                 // of the whole grid; 0 where it is not launched
  int threads = 0;                    // of a block
  int registers = 0;                  // of a thread
  int static_shared_bytes = 0;        // of a block
  int dynamic_shared_bytes = 0;       // of a block
  int local_bytes = 0;                // of a thread: registers spilled, arrays that have none
  int blocks_per_multiprocessor = 0;  // that fit at once
};

enum class MemoryUse { input, output, workspace };

struct MemoryUsage {
  int64_t input = 0, output = 0, workspace = 0;
  int64_t total() const { return input + output + workspace; }
};

// The device could not give the memory asked for.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// No such device here; the message says what to do.
class NoDevice : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Device;

// Owned device memory, 64-byte aligned; freed, and taken off the device's account, when it goes.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, size_t bytes, MemoryUse use);
  ~Buffer() { release(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void release();
  void swap(Buffer& other) noexcept;

  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  MemoryUse use_ = MemoryUse::workspace;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual Stream stream() = 0;
  virtual void synchronize() = 0;

  // Memory that starts poisoned. Throws OutOfMemory.
  Buffer allocate(size_t bytes, MemoryUse use) { return Buffer(*this, bytes, use); }

  virtual void copy_to_device(void* to, const void* from, size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;

  // Fills with kPoisonByte: a NaN in every dtype, so that what is not written shows.
  virtual void poison(void* data, size_t bytes) = 0;

  // Seconds that the work launched by `launch` took, from a state of rest until all of it is done.
  // On a GPU the time between two events, without what the host took to launch; `launch` must not
  // wait for the device.
  virtual double time(const std::function<void()>& launch) = 0;

  // Seconds that the device goes on working once its stream is done with what `launch` put there:
  // work on a stream of the launcher's own, which time() does not see. 0 where there is none.
  virtual double seconds_behind(const std::function<void()>&) { return 0; }

  // The same work in the form that is launched with the least cost. Runs it a few times.
  virtual Replay replayable(const std::function<void()>& launch) { return {.launch = launch}; }

  // The kernels that `launch` would launch, in order, without running them; empty where the device
  // does not tell.
  virtual std::vector<KernelFacts> kernels_of(const std::function<void()>&) { return {}; }

  // Facts for the record beyond DeviceInfo: versions of driver and libraries, the power limit.
  virtual std::vector<std::pair<std::string, std::string>> facts() const { return {}; }

  // What the device says of itself now; empty where it says nothing.
  virtual std::optional<DeviceState> state() { return std::nullopt; }

  // Joules that it has used since some time in the past, all of the board; empty where it says
  // nothing.
  virtual std::optional<double> energy() { return std::nullopt; }

  // What the threads that do the work have had of the cores so far, in seconds summed over threads:
  // processor time, and time in which they were ready to run while others ran. Empty where the
  // system does not tell, and on a GPU, whose clock waits for nobody.
  virtual std::optional<double> ran_seconds() { return std::nullopt; }
  virtual std::optional<double> waited_seconds() { return std::nullopt; }

  // Pushes earlier work out of the caches by reading a clean buffer of eviction_bytes().
  virtual void evict_caches() = 0;
  virtual int64_t eviction_bytes() const = 0;

  // Of device memory, in place: a hash; how many elements of this size are still poison; the sign
  // of every element flipped. The defaults do it on the host.
  virtual uint64_t hash(const void* data, size_t bytes, uint64_t seed);
  virtual int64_t poisoned_elements(const void* data, int64_t elements, size_t element_bytes);
  virtual void flip_signs(void* data, int64_t elements, size_t element_bytes);

  // The system's own view beside what is tracked below: how far the memory in use has grown since
  // the last watch_growth(). The peak of the process's resident set on a CPU, what the driver has
  // given away now on a GPU.
  virtual void watch_growth() {}
  virtual int64_t growth() { return 0; }

  // Whether all that a provider takes shows in the account below.
  virtual bool counts_memory() const { return true; }

  const MemoryUsage& used() const { return used_; }
  const MemoryUsage& peak() const { return peak_; }
  void reset_peak() { peak_ = used_; }

 protected:
  friend class Buffer;
  virtual void* raw_allocate(size_t bytes) = 0;  // null if there is no room
  virtual void raw_free(void* data) = 0;
  void account(MemoryUse use, int64_t bytes);

 private:
  // Calls chunk(offset, bytes) for a piece of device memory after the other, copied to the host.
  template <typename Chunk>
  void for_chunks(const void* data, size_t bytes, const Chunk& chunk);

  MemoryUsage used_, peak_;
};

inline constexpr unsigned char kPoisonByte = 0xff;

// Negates little-endian values in host memory: the sign is in the last byte of each.
void flip_signs(std::span<std::byte> values, size_t element_bytes);

// The host, with this many threads; 0 means all that this process may run on.
std::unique_ptr<Device> make_host_device(int threads);

// `selector` is "auto" (a GPU where there is one, else the host), "cpu", "cuda" or "cuda:N".
// Throws NoDevice, or BadInput for any other selector.
std::unique_ptr<Device> make_device(std::string_view selector, int threads);

}  // namespace flashbench
