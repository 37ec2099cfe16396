#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "device/cuda.h"
#include "device/cuda_call.h"
#include "device/cuda_gpu.h"
#include "device/cuda_ranks.h"
#include "device/nccl_ranks.h"
#include "device/rank_barrier.h"
#include "device/stream_watch.h"

namespace flashbench {

namespace {

// A rank only queues work, which takes much less; a stream that is held gives up before.
constexpr double kMostSecondsAtBarrier = 30;

void queue_copy(const RowCopy& copy, cudaStream_t stream) {
  if (copy.height == 1) {
    FLASHBENCH_CUDA(cudaMemcpyAsync(copy.to, copy.from, copy.width, cudaMemcpyDefault, stream));
    return;
  }
  FLASHBENCH_CUDA(cudaMemcpy2DAsync(copy.to, copy.to_pitch, copy.from, copy.from_pitch, copy.width,
                                    copy.height, cudaMemcpyDefault, stream));
}

// The copies of a rank: a pull is between two events.
class Pulls {
 public:
  int64_t add(const std::vector<RowCopy>& copies, cudaStream_t compute, cudaStream_t copying) {
    Pull& pull = allowed_after(compute, copying);
    for (const RowCopy& copy : copies) queue_copy(copy, copying);
    pull.done.record(copying);
    pull.stream = copying;
    return static_cast<int64_t>(used_);
  }
  // The first source on the stream itself, and each other one on a stream of its own.
  int64_t add_at_once(const std::vector<DeviceGroup::Source>& sources, cudaStream_t compute,
                      cudaStream_t copying, const std::function<cudaStream_t(int)>& stream_of) {
    Pull& pull = allowed_after(compute, copying);
    while (pull.parts.size() < sources.size()) {
      pull.parts.push_back(std::make_unique<CudaEvent>(CudaEvent::Use::order));
    }
    pull.parts.front()->record(copying);
    for (size_t i = 1; i < sources.size(); ++i) {
      const cudaStream_t own = stream_of(sources[i].from);
      pull.parts.front()->hold_up(own);
      for (const RowCopy& copy : sources[i].copies) queue_copy(copy, own);
      pull.parts[i]->record(own);
    }
    for (const RowCopy& copy : sources.front().copies) queue_copy(copy, copying);
    for (size_t i = 1; i < sources.size(); ++i) pull.parts[i]->hold_up(copying);
    pull.done.record(copying);
    pull.stream = copying;
    return static_cast<int64_t>(used_);
  }
  // Copies by kernels. One that is queued beside a kernel of ours, which takes all multiprocessors,
  // might start when that ends, so that the compute stream is held up until these can start.
  int64_t add_kernels(const std::function<void()>& queue, cudaStream_t compute,
                      cudaStream_t copying) {
    Pull& pull = allowed_after(compute, copying);
    pull.allowed.record(copying);
    queue();
    pull.allowed.hold_up(compute);
    pull.done.record(copying);
    pull.stream = copying;
    return static_cast<int64_t>(used_);
  }
  // The last pull of each stream up to this one.
  void hold_up(int64_t number, cudaStream_t compute) const {
    const auto count = static_cast<size_t>(number);
    std::vector<cudaStream_t> waited_for;
    for (size_t i = count; i-- > 0;) {
      const Pull& pull = *pulls_.at(i);
      if (std::ranges::find(waited_for, pull.stream) != waited_for.end()) continue;
      waited_for.push_back(pull.stream);
      pull.done.hold_up(compute);
    }
  }
  void begin_run() { used_ = 0; }

 private:
  struct Pull {
    CudaEvent allowed{CudaEvent::Use::order}, done{CudaEvent::Use::order};
    std::vector<std::unique_ptr<CudaEvent>> parts;
    cudaStream_t stream = nullptr;
  };
  Pull& allowed_after(cudaStream_t compute, cudaStream_t copying) {
    if (used_ == pulls_.size()) pulls_.push_back(std::make_unique<Pull>());
    Pull& pull = *pulls_[used_++];
    pull.allowed.record(compute);
    pull.allowed.hold_up(copying);
    return pull;
  }
  std::vector<std::unique_ptr<Pull>> pulls_;  // of this run, and events left from earlier ones
  size_t used_ = 0;
};

class CudaGroup final : public DeviceGroup {
 public:
  CudaGroup(Device& device, CudaRanks& ranks, int count, std::unique_ptr<NcclRanks> nccl = nullptr)
      : device_(device),
        gpus_(ranks),
        nccl_(std::move(nccl)),
        barrier_(count, kMostSecondsAtBarrier),
        states_(static_cast<size_t>(count)),
        watch_(count),
        runners_(count) {
    for (int rank = 0; rank < count; ++rank) {
      const WorkOnGpu here(gpu(rank));
      for (auto& event : state(rank).at_barrier) {
        event = std::make_unique<CudaEvent>(CudaEvent::Use::order);
      }
    }
  }

  int ranks() const override { return static_cast<int>(states_.size()); }
  const DeviceInfo& info(int rank) const override { return gpus_.info(rank); }
  Stream stream(int rank) override {
    return {.threads = device_.stream().threads, .cuda = gpus_.compute(rank)};
  }
  Buffer allocate(int rank, size_t bytes) override {
    return device_.allocate(bytes, MemoryUse::workspace, {{0, bytes, rank}});
  }
  Buffer allocate_for_all(size_t bytes, const std::vector<OwnedBytes>& owned) override {
    return device_.allocate(bytes, MemoryUse::workspace, owned);
  }

  void run(const std::function<void(int)>& body) override {
    const auto main = static_cast<cudaStream_t>(device_.stream().cuda);
    require_no_capture(main);
    barrier_.begin();
    gpus_.fork(main, ranks());
    // As many threads as ranks, so that ranks that wait for each other all run.
    runners_.parallel_for(ranks(), [&](int64_t item, int) {
      const auto rank = static_cast<int>(item);
      guarded([&] {
        const WorkOnGpu here(gpu(rank));
        begin(rank);
        guarded([&] { body(rank); });
        gpus_.end(rank);
      });
    });
    // What NCCL does for the others would wait for a rank that has failed.
    if (nccl_ && barrier_.failure()) nccl_->abort();
    guarded([&] { gpus_.join(main); });
    if (const auto failure = barrier_.failure()) std::rethrow_exception(failure);
    has_run_ = true;
  }

  int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
    if (mark != kNoMark) without_marks();
    return state(rank).pulls.add(copies, gpus_.compute(rank),
                                 from == rank ? gpus_.own_copies(rank) : gpus_.copies(rank));
  }
  int64_t pull_from(int rank, std::vector<Source> sources) override {
    if (sources.size() < 2) return DeviceGroup::pull_from(rank, std::move(sources));
    return state(rank).pulls.add_at_once(
        sources, gpus_.compute(rank), gpus_.copies(rank),
        [&](int from) { return gpus_.copies_at_once(rank, from); });
  }
  // In the first run each rank's thread waits for NCCL, because the kernels that come next are
  // loaded when they are first launched: a load may wait until its GPU is idle, and so for a rank
  // whose thread waits to load one, too.
  int64_t communicate(int rank, const NcclWork& work) override {
    if (nccl_ == nullptr) return DeviceGroup::communicate(rank, work);
    const cudaStream_t copies = gpus_.copies(rank);
    const int64_t number = state(rank).pulls.add_kernels([&] { work(*nccl_, {.cuda = copies}); },
                                                         gpus_.compute(rank), copies);
    if (!has_run_) wait_on_host(copies);
    return number;
  }
  void wait(int rank, int64_t pull) override {
    state(rank).pulls.hold_up(pull, gpus_.compute(rank));
  }

  void set_mark(int, int) override { without_marks(); }
  void when_done(int rank, const std::function<void()>& call) override {
    watch_.when_done(rank, gpus_.compute(rank), call);
  }

  // Two events for each rank, in turns: when one is recorded again, every rank has passed the
  // barrier between, and so has queued its wait for the record before.
  void barrier(int rank) override {
    State& own = state(rank);
    const size_t turn = own.barriers++ % own.at_barrier.size();
    own.at_barrier[turn]->record(gpus_.compute(rank));
    barrier_.arrive(rank);
    for (const State& other : states_) {
      if (&other != &own) other.at_barrier[turn]->hold_up(gpus_.compute(rank));
    }
  }

  std::vector<double> rank_seconds() const override { return gpus_.seconds(); }

 private:
  struct State {
    Pulls pulls;
    std::array<std::unique_ptr<CudaEvent>, 2> at_barrier;
    size_t barriers = 0;  // of this run
  };

  [[noreturn]] static void without_marks() { throw std::logic_error("GPUs have no marks"); }

  // What a rank has queued before it failed ends by itself: nothing waits for what it has not.
  template <typename Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (...) {
      barrier_.fail(std::current_exception());
    }
  }

  void wait_on_host(cudaStream_t stream) {
    while (true) {
      const cudaError_t status = cudaStreamQuery(stream);
      if (status != cudaErrorNotReady) return FLASHBENCH_CUDA(status);
      cudaGetLastError();  // clears what is no error
      if (barrier_.failure()) throw RankFailed("another rank has failed");
      std::this_thread::yield();
    }
  }

  void begin(int rank) {
    state(rank).pulls.begin_run();
    state(rank).barriers = 0;
    gpus_.begin(rank);
  }

  int gpu(int rank) const { return gpus_.gpus()[static_cast<size_t>(rank)]; }
  State& state(int rank) { return states_[static_cast<size_t>(rank)]; }

  // The streams of the ranks would become part of the graph, and their events mean nothing there.
  static void require_no_capture(cudaStream_t main) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    FLASHBENCH_CUDA(cudaStreamIsCapturing(main, &status));
    if (status != cudaStreamCaptureStatusNone) {
      throw std::runtime_error("a run of several GPUs is no graph");
    }
  }

  Device& device_;
  CudaRanks& gpus_;
  std::unique_ptr<NcclRanks> nccl_;
  bool has_run_ = false;
  RankBarrier barrier_;
  std::vector<State> states_;
  StreamWatch watch_;
  ThreadPool runners_;
};

}  // namespace

std::unique_ptr<DeviceGroup> make_cuda_group(Device& device, int ranks) {
  CudaRanks* const all = device.cuda_ranks();
  if (all == nullptr || ranks > static_cast<int>(all->gpus().size())) return nullptr;
  return std::make_unique<CudaGroup>(device, *all, ranks);
}

std::unique_ptr<DeviceGroup> make_nccl_group(Device& device, int ranks) {
  CudaRanks* const all = device.cuda_ranks();
  if (all == nullptr || ranks > static_cast<int>(all->gpus().size())) return nullptr;
  if (const auto why = why_no_nccl(device.info(), nccl_library())) throw std::runtime_error(*why);
  const std::vector<int> gpus(all->gpus().begin(), all->gpus().begin() + ranks);
  return std::make_unique<CudaGroup>(device, *all, ranks,
                                     std::make_unique<NcclRanks>(nccl_library(), gpus));
}

}  // namespace flashbench
