// A GPU as a device: its own memory, one stream, times between events.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "attention/tensors.h"
#include "device/cublas_library.h"
#include "device/cuda.h"
#include "device/cuda_bytes.h"
#include "device/cuda_call.h"
#include "device/cuda_event.h"
#include "device/cuda_gpu.h"
#include "device/cuda_kernels.h"
#include "device/cuda_ranks.h"
#include "device/cudnn_library.h"
#include "device/gpu_list.h"
#include "device/nvml.h"

namespace flashbench {

namespace {

// If a launch takes longer than this to return, it waits for the device, which waits for it.
constexpr double kHoldSeconds = 10;

// Memory that host and device share: the flags of the kernel that holds the stream.
class Flags {
 public:
  Flags() {
    FLASHBENCH_CUDA(
        cudaHostAlloc(reinterpret_cast<void**>(&host_), 2 * sizeof(int), cudaHostAllocMapped));
    FLASHBENCH_CUDA(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_), host_, 0));
  }
  ~Flags() { cudaFreeHost(host_); }
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // Holds the stream, and those of the ranks if there are any.
  void hold(cudaStream_t stream, CudaRanks* ranks) {
    set(host_[0], 0);
    set(host_[1], 0);
    cuda_bytes::hold(device_, device_ + 1, kHoldSeconds, stream);
    if (ranks != nullptr) ranks->begin_timing(device_, device_ + 1, kHoldSeconds);
  }
  void release() { set(host_[0], 1); }
  bool gave_up() const { return std::atomic_ref(host_[1]).load() != 0; }

 private:
  static void set(int& flag, int value) { std::atomic_ref(flag).store(value); }

  int* host_ = nullptr;  // [0] release, [1] the kernel gave up
  int* device_ = nullptr;
};

// Captures the work of a launch without running it.
class Captured {
 public:
  Captured(cudaStream_t stream, const std::function<void()>& launch) {
    FLASHBENCH_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    std::exception_ptr error;
    try {
      launch();
    } catch (...) {
      error = std::current_exception();
    }
    const cudaError_t captured = cudaStreamEndCapture(stream, &graph_);
    if (!error && captured == cudaSuccess) return;
    cudaGetLastError();  // clears the error; a launch that cannot be captured is launched directly
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    graph_ = nullptr;
  }
  ~Captured() {
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  cudaGraph_t graph() const { return graph_; }  // null if the launch cannot be captured

 private:
  cudaGraph_t graph_ = nullptr;
};

// A captured launch, ready to be launched again.
class Graph {
 public:
  // Returns null if there is only one kernel, or if the launch cannot be captured.
  static std::shared_ptr<Graph> capture(cudaStream_t stream, const std::function<void()>& launch) {
    const Captured captured(stream, launch);
    if (captured.graph() == nullptr) return nullptr;
    size_t nodes = 0;
    FLASHBENCH_CUDA(cudaGraphGetNodes(captured.graph(), nullptr, &nodes));
    if (nodes <= 1) return nullptr;
    cudaGraphExec_t executable = nullptr;
    FLASHBENCH_CUDA(cudaGraphInstantiate(&executable, captured.graph(), 0));
    return std::make_shared<Graph>(executable, static_cast<int>(nodes));
  }

  Graph(cudaGraphExec_t executable, int nodes) : executable_(executable), nodes_(nodes) {}
  ~Graph() { cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  int nodes() const { return nodes_; }
  void launch(cudaStream_t stream) { FLASHBENCH_CUDA(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraphExec_t executable_;
  int nodes_;
};

class CudaDevice final : public Device {
 public:
  // The first of the GPUs; with several, all of them for the problems that they share.
  explicit CudaDevice(const std::vector<int>& gpus)
      : info_(describe_gpu(gpus.front())),
        host_(make_host_device(0)),
        nvml_(Nvml::open(gpu_bus_id(gpus.front()))) {
    FLASHBENCH_CUDA(cudaSetDevice(gpus.front()));
    if (gpus.size() > 1) {
      ranks_ = std::make_unique<CudaRanks>(gpus);
      info_.ranks = static_cast<int>(gpus.size());
      info_.rank_gpus = gpus;
      info_.ranks_share_gpus = different(gpus).size() < gpus.size();
      info_.ranks_add_to_others = ranks_->add_to_others();
    }
    FLASHBENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    FLASHBENCH_CUDA(cudaMalloc(reinterpret_cast<void**>(&result_), sizeof(*result_)));
    flags_ = std::make_unique<Flags>();
    start_ = std::make_unique<CudaEvent>(CudaEvent::Use::time);
    stop_ = std::make_unique<CudaEvent>(CudaEvent::Use::time);
  }
  ~CudaDevice() override {
    cudaFree(eviction_);
    cudaFree(result_);
    cudaStreamDestroy(stream_);
  }

  const DeviceInfo& info() const override { return info_; }
  Stream stream() override { return {.threads = host_->stream().threads, .cuda = stream_}; }
  void synchronize() override {
    if (ranks_ != nullptr) return ranks_->synchronize();
    FLASHBENCH_CUDA(cudaDeviceSynchronize());
  }
  CudaRanks* cuda_ranks() override { return ranks_.get(); }

  void copy_to_device(void* to, const void* from, size_t bytes) override {
    FLASHBENCH_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
    FLASHBENCH_CUDA(cudaStreamSynchronize(stream_));
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    FLASHBENCH_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
    FLASHBENCH_CUDA(cudaStreamSynchronize(stream_));
  }
  // Memory that is spread over several GPUs is filled by a kernel, which can write all of it.
  void poison(void* data, size_t bytes) override {
    if (ranks_ != nullptr) return cuda_bytes::fill(data, bytes, kPoisonByte, stream_);
    FLASHBENCH_CUDA(cudaMemsetAsync(data, kPoisonByte, bytes, stream_));
  }

  // Holds the stream until everything is launched, so that the launch time of the host is not
  // between the events. If ranks have run, the time is that of the slowest.
  double time(const std::function<void()>& launch) override {
    synchronize();
    const Timing timing(ranks_.get());
    flags_->hold(stream_, ranks_.get());
    start_->record(stream_);
    try {
      launch();
    } catch (...) {
      flags_->release();
      throw;
    }
    stop_->record(stream_);
    flags_->release();
    synchronize();
    if (flags_->gave_up()) {
      throw std::runtime_error(fmt::format(
          "it waited for the device, or took more than {:g} s to launch: events around it cannot "
          "time it",
          kHoldSeconds));
    }
    if (ranks_ != nullptr && ranks_->ran() > 0) return std::ranges::max(ranks_->seconds());
    return stop_->seconds_since(*start_);
  }

  double seconds_behind(const std::function<void()>& launch) override {
    launch();
    FLASHBENCH_CUDA(cudaStreamSynchronize(stream_));
    const double until_done = seconds_to_synchronize();
    const double when_idle = seconds_to_synchronize();  // what the call takes, of each GPU
    return std::max(0.0, until_done - when_idle);
  }

  // The first run triggers lazy loading, which would wait for a held stream.
  Replay replayable(const std::function<void()>& launch) override {
    launch();
    synchronize();
    Replay replay{.launch = launch, .host_seconds = host_seconds(launch)};
    if (const auto graph = Graph::capture(stream_, launch)) {
      replay.graph_nodes = graph->nodes();
      replay.launch = [graph, stream = stream_] { graph->launch(stream); };
    }
    return replay;
  }

  std::vector<KernelFacts> kernels_of(const std::function<void()>& launch) override {
    const Captured captured(stream_, launch);
    if (captured.graph() == nullptr) return {};
    try {
      return kernel_facts(captured.graph());
    } catch (const std::runtime_error&) {
      return {};  // missing facts are no reason to reject a provider
    }
  }

  std::vector<std::pair<std::string, std::string>> facts() const override {
    int driver = 0, runtime = 0;
    FLASHBENCH_CUDA(cudaDriverGetVersion(&driver));
    FLASHBENCH_CUDA(cudaRuntimeGetVersion(&runtime));
    std::vector<std::pair<std::string, std::string>> facts{{"cuda_driver_api", version(driver)},
                                                           {"cuda_runtime", version(runtime)}};
    if (cudnn_library().error.empty()) facts.emplace_back("cudnn", cudnn_library().version);
    if (ranks_ != nullptr) facts.emplace_back("ranks", ranks_text(ranks_->gpus()));
    if (nvml_ != nullptr) {
      facts.emplace_back("driver", nvml_->driver_version());
      facts.emplace_back("power_limit_w", fmt::format("{:g}", nvml_->power_limit()));
    }
    return facts;
  }

  std::optional<DeviceState> state() override {
    return nvml_ == nullptr ? std::nullopt : nvml_->state();
  }
  std::optional<double> energy() override {
    return nvml_ == nullptr ? std::nullopt : nvml_->energy();
  }

  void evict_caches() override {
    const auto bytes = static_cast<size_t>(eviction_bytes());
    if (eviction_ == nullptr) {
      FLASHBENCH_CUDA(cudaMalloc(&eviction_, bytes));
      FLASHBENCH_CUDA(cudaMemsetAsync(eviction_, 0, bytes, stream_));
    }
    cuda_bytes::read(eviction_, bytes, result_, stream_);
    if (ranks_ != nullptr) ranks_->evict_caches_of_others(info_.index, bytes);
  }
  int64_t eviction_bytes() const override { return 2 * info_.last_level_cache_bytes / 16 * 16; }

  uint64_t hash(const void* data, size_t bytes, uint64_t seed) override {
    return reduce(seed, [&] { cuda_bytes::hash(data, bytes, result_, stream_); });
  }
  int64_t poisoned_elements(const void* data, int64_t elements, size_t element_bytes) override {
    return static_cast<int64_t>(reduce(
        0, [&] { cuda_bytes::count_all_ones(data, elements, element_bytes, result_, stream_); }));
  }
  void flip_signs(void* data, int64_t elements, size_t element_bytes) override {
    cuda_bytes::flip_signs(data, elements, element_bytes, stream_);
  }

  void watch_growth() override { free_before_ = free_bytes(); }
  int64_t growth() override { return free_before_ - free_bytes(); }

 protected:
  void* raw_allocate(size_t bytes) override {
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error; null tells the caller
      return nullptr;
    }
    check_cuda(status, "cudaMalloc", __FILE__, __LINE__);
    return data;
  }
  void* raw_allocate_owned(size_t bytes, const std::vector<OwnedBytes>& owned) override {
    return ranks_ == nullptr ? raw_allocate(bytes) : ranks_->allocate(bytes, owned);
  }
  void raw_free(void* data) override {
    if (ranks_ == nullptr || !ranks_->free(data)) cudaFree(data);
  }

 private:
  // While it lives, the ranks are held with the device's stream.
  class Timing {
   public:
    explicit Timing(CudaRanks* ranks) : ranks_(ranks) {}
    ~Timing() {
      if (ranks_ != nullptr) ranks_->end_timing();
    }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;

   private:
    CudaRanks* ranks_;
  };

  static std::string version(int number) {
    return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
  }

  double seconds_to_synchronize() {
    const auto start = std::chrono::steady_clock::now();
    synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // The median of a few calls: the time of the call, not of its work.
  double host_seconds(const std::function<void()>& launch) {
    std::array<double, 5> seconds{};
    for (double& s : seconds) {
      const auto start = std::chrono::steady_clock::now();
      launch();
      s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      synchronize();
    }
    std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
    return seconds[2];
  }

  // Returns `seed` plus what the launch adds to *result_.
  template <typename LaunchWork>
  uint64_t reduce(uint64_t seed, const LaunchWork& launch) {
    copy_to_device(result_, &seed, sizeof(seed));
    launch();
    copy_to_host(&seed, result_, sizeof(seed));
    return seed;
  }

  int64_t free_bytes() const {
    if (ranks_ != nullptr) return ranks_->free_bytes();
    size_t free = 0, total = 0;
    FLASHBENCH_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }

  DeviceInfo info_;
  std::unique_ptr<Device> host_;  // its threads make inputs and judge outputs
  std::unique_ptr<Nvml> nvml_;
  cudaStream_t stream_ = nullptr;
  unsigned long long* result_ = nullptr;
  void* eviction_ = nullptr;
  std::unique_ptr<Flags> flags_;
  std::unique_ptr<CudaEvent> start_, stop_;
  std::unique_ptr<CudaRanks> ranks_;  // null for one GPU
  int64_t free_before_ = 0;
};

}  // namespace

std::optional<std::string> why_no_cuda() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return std::nullopt;
  cudaGetLastError();
  return fmt::format("no NVIDIA GPU can be used here ({}): run on the CPU with --device cpu",
                     status == cudaSuccess ? "the driver lists none" : cudaGetErrorString(status));
}

std::unique_ptr<Device> make_cuda_devices(const std::vector<int>& gpus) {
  if (const auto why = why_no_cuda()) throw NoDevice(*why);
  if (const auto why = why_no_cublas()) throw NoDevice(*why);
  for (const int gpu : gpus) require_gpu(gpu);
  try {
    return std::make_unique<CudaDevice>(gpus);
  } catch (const CudaError& error) {
    throw NoDevice(fmt::format("cuda:{} cannot be used: {}", fmt::join(gpus, ","), error.what()));
  }
}

std::unique_ptr<Device> make_cuda_device(int index) {
  return make_cuda_devices({index});
}

}  // namespace flashbench
