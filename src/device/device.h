// A device that runs kernels: its tracked memory, its stream and its clock. host_device.cpp
// implements the host; a build with CUDA adds cuda_device.cpp, a build without it cuda_none.cpp.
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

#include "attention/enum_names.h"
#include "device/page_owners.h"
#include "host/thread_pool.h"

namespace flashbench {

enum class DeviceKind { cpu, cuda };
template <>
inline constexpr auto kNames<DeviceKind> = names_of<DeviceKind>({{DeviceKind::cpu, "cpu"},
                                                                 {DeviceKind::cuda, "cuda"}});

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  std::string name;            // as the processor reports it, e.g. "Intel(R) Xeon(R) Processor"
  std::string instructions;    // the best SIMD target that Highway knows for it, or "sm_90"
  int compute_capability = 0;  // 10 * major + minor on a GPU, e.g. 90
  int threads = 0;             // CPU threads used, or streaming multiprocessors
  int64_t memory_bytes = 0;
  int64_t last_level_cache_bytes = 0;
  int64_t shared_memory_bytes = 0;  // per thread block at most, on a GPU

  // How many devices can share a problem: the GPUs that --device names, if several; 0 on a CPU,
  // where groups of threads are as many as asked. A GPU that is named twice counts twice, and then
  // nothing is gained by sharing.
  int ranks = 0;
  bool ranks_share_gpus = false;
  bool ranks_add_to_others = true;  // whether each GPU can add to the memory of the others
  std::vector<int> rank_gpus;       // the number of each rank's GPU, if --device names several
};

// Where kernels run: a thread pool on a CPU; on a GPU a stream (cudaStream_t), with a pool for work
// on the host.
struct Stream {
  ThreadPool* threads = nullptr;
  void* cuda = nullptr;
};

// The state of a GPU right after a sample. Reasons are NVML's bits; kSlowing are those that mean
// the clock was held down (power cap, heat, power brake), and not merely that the GPU was idle.
struct DeviceState {
  double sm_mhz = 0;
  double power_w = 0;
  uint64_t throttle_reasons = 0;

  static constexpr uint64_t kSlowing = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
};

// A launch in a form that can be repeated: on a GPU, a graph if it has several kernels.
struct Replay {
  std::function<void()> launch;
  int graph_nodes = 0;                                // 0: launched directly
  std::optional<double> host_seconds = std::nullopt;  // what the host takes to launch it, without
                                                      // a graph; empty where it does the work
};

// The resources of a kernel as compiled for this GPU.
struct KernelFacts {
  std::string name;
  int64_t blocks = 0;            // of the whole grid; 0 if it is not launched
  int threads = 0;               // of a block
  int registers = 0;             // of a thread
  int static_shared_bytes = 0;   // of a block
  int dynamic_shared_bytes = 0;  // of a block
  int local_bytes = 0;  // per thread: spilled registers, and arrays that are not in registers
  int blocks_per_multiprocessor = 0;  // resident at once
};

enum class MemoryUse { input, output, workspace };

struct MemoryUsage {
  int64_t input = 0, output = 0, workspace = 0;
  int64_t total() const { return input + output + workspace; }
};

// The device has not enough memory.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// There is no such device; the message says what to do.
class NoDevice : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CudaRanks;
class Device;

// Owned device memory, 64-byte aligned. The destructor frees it and removes it from the device's
// account.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, size_t bytes, MemoryUse use, const std::vector<OwnedBytes>& owned = {});
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

  // Allocates poisoned memory. Throws OutOfMemory. Where several GPUs share problems, bytes that
  // are of a rank are in its memory, by whole pages; those of nobody are this device's.
  Buffer allocate(size_t bytes, MemoryUse use, const std::vector<OwnedBytes>& owned = {}) {
    return Buffer(*this, bytes, use, owned);
  }

  // The GPUs that share problems; null for any other device.
  virtual CudaRanks* cuda_ranks() { return nullptr; }

  virtual void copy_to_device(void* to, const void* from, size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;

  // Fills memory with kPoisonByte, a NaN in every dtype, so that missing writes show.
  virtual void poison(void* data, size_t bytes) = 0;

  // Returns the seconds that the work of `launch` took, from an idle device until all of it is
  // done. On a CPU, its threads are awake when it begins. On a GPU, the time between two events,
  // without the time that the host took to launch; `launch` must not wait for the device.
  virtual double time(const std::function<void()>& launch) = 0;

  // Returns the seconds that the device keeps working after its stream has finished the work of
  // `launch`: work on another stream, which time() does not see. 0 if there is none.
  virtual double seconds_behind(const std::function<void()>&) { return 0; }

  // Returns the same work in its cheapest form to launch. Runs it a few times.
  virtual Replay replayable(const std::function<void()>& launch) { return {.launch = launch}; }

  // Returns the kernels that `launch` would launch, in order, without running them; empty if the
  // device cannot tell.
  virtual std::vector<KernelFacts> kernels_of(const std::function<void()>&) { return {}; }

  // Facts for the record beyond DeviceInfo: versions of driver and libraries, the power limit.
  virtual std::vector<std::pair<std::string, std::string>> facts() const { return {}; }

  // The current state; empty if the device does not report it.
  virtual std::optional<DeviceState> state() { return std::nullopt; }

  // Joules used by the whole board since some time in the past; empty if the device does not report
  // it.
  virtual std::optional<double> energy() { return std::nullopt; }

  // Core time of the threads that do the work so far, in seconds summed over threads: processor
  // time, and time in which they were ready to run while others ran. Empty if the system does not
  // report it, and on a GPU, whose clock waits for nobody.
  virtual std::optional<double> ran_seconds() { return std::nullopt; }
  virtual std::optional<double> waited_seconds() { return std::nullopt; }

  // Whether this process can launch its own work on the device's memory: another program's is out
  // of reach.
  virtual bool takes_launches() const { return true; }

  // Evicts earlier data from the caches by reading a clean buffer of eviction_bytes().
  virtual void evict_caches() = 0;
  virtual int64_t eviction_bytes() const = 0;

  // Operations on device memory in place: hash it; count the elements of this size that are still
  // poison; flip the sign of every element. The default implementations run on the host.
  virtual uint64_t hash(const void* data, size_t bytes, uint64_t seed);
  virtual int64_t poisoned_elements(const void* data, int64_t elements, size_t element_bytes);
  virtual void flip_signs(void* data, int64_t elements, size_t element_bytes);

  // The system's own view of memory, beside the account below: how far the memory in use has grown
  // since the last watch_growth(). On a CPU the peak of the process's resident set, on a GPU the
  // memory that the driver has allocated now.
  virtual void watch_growth() {}
  virtual int64_t growth() { return 0; }

  // Whether the account below contains all memory that a provider takes.
  virtual bool counts_memory() const { return true; }

  const MemoryUsage& used() const { return used_; }
  const MemoryUsage& peak() const { return peak_; }
  void reset_peak() { peak_ = used_; }

 protected:
  friend class Buffer;
  virtual void* raw_allocate(size_t bytes) = 0;  // returns null if memory is short
  virtual void* raw_allocate_owned(size_t bytes, const std::vector<OwnedBytes>&) {
    return raw_allocate(bytes);
  }
  virtual void raw_free(void* data) = 0;
  void account(MemoryUse use, int64_t bytes);

 private:
  // Copies device memory to the host piece by piece, and calls chunk(offset, bytes) for each piece.
  template <typename Chunk>
  void for_chunks(const void* data, size_t bytes, const Chunk& chunk);

  MemoryUsage used_, peak_;
};

// Negates little-endian values in host memory: the sign is in the last byte of each.
void flip_signs(std::span<std::byte> values, size_t element_bytes);

// Makes the host device with this many threads; 0 means all that this process may run on.
std::unique_ptr<Device> make_host_device(int threads);

// `selector` is "auto" (a GPU if there is one, else the host), "cpu", or what gpu_list() takes.
// Throws NoDevice, or BadInput for any other selector.
std::unique_ptr<Device> make_device(std::string_view selector, int threads);

}  // namespace flashbench
