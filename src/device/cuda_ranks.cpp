#include "device/cuda_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/cuda_bytes.h"
#include "device/cuda_gpu.h"
#include "device/gpu_list.h"

namespace flashbench {

CudaRanks::CudaRanks(const std::vector<int>& gpus) : gpus_(gpus), different_gpus_(different(gpus)) {
  for (const int gpu : different_gpus_) {
    for (const int other : different_gpus_) {
      if (gpu != other) enable_peer_access(gpu, other);
    }
  }
  for (const int gpu : gpus_) make_rank(gpu);
  const WorkOnGpu here(gpus_.front());
  forked_ = std::make_unique<CudaEvent>(CudaEvent::Use::order);
}

bool CudaRanks::add_to_others() const {
  return std::ranges::all_of(different_gpus_, [&](int gpu) {
    return std::ranges::all_of(different_gpus_,
                               [&](int other) { return gpu == other || adds_to_peer(gpu, other); });
  });
}

void CudaRanks::make_rank(int gpu) {
  const WorkOnGpu here(gpu);
  Rank rank;
  rank.gpu = gpu;
  rank.info = describe_gpu(gpu);
  if (!ranks_.empty() && rank.info.name != ranks_.front().info.name) {
    throw NoDevice(
        fmt::format("cuda:{} is a {} and cuda:{} a {}: only GPUs of one kind share a problem",
                    gpus_.front(), ranks_.front().info.name, gpu, rank.info.name));
  }
  FLASHBENCH_CUDA(cudaStreamCreateWithFlags(&rank.compute, cudaStreamNonBlocking));
  rank.copies = make_copy_stream();
  rank.own_copies = make_copy_stream();
  for (size_t from = 0; from < gpus_.size(); ++from) {
    FLASHBENCH_CUDA(
        cudaStreamCreateWithFlags(&rank.copies_at_once.emplace_back(), cudaStreamNonBlocking));
  }
  rank.begun = std::make_unique<CudaEvent>(CudaEvent::Use::time);
  rank.ended = std::make_unique<CudaEvent>(CudaEvent::Use::time);
  ranks_.push_back(std::move(rank));
}

CudaRanks::CopyStream CudaRanks::make_copy_stream() {
  CopyStream copies;
  FLASHBENCH_CUDA(cudaStreamCreateWithFlags(&copies.stream, cudaStreamNonBlocking));
  copies.ended = std::make_unique<CudaEvent>(CudaEvent::Use::order);
  return copies;
}

CudaRanks::~CudaRanks() {
  for (const auto& [gpu, eviction] : evictions_) {
    cudaFree(eviction.data);
    cudaFree(eviction.result);
  }
  for (const Rank& rank : ranks_) {
    cudaStreamDestroy(rank.compute);
    cudaStreamDestroy(rank.copies.stream);
    cudaStreamDestroy(rank.own_copies.stream);
    for (const cudaStream_t copies : rank.copies_at_once) cudaStreamDestroy(copies);
  }
}

void CudaRanks::fork(cudaStream_t main, int ranks) {
  ran_ = ranks;
  if (held_) return;
  forked_->record(main);
  for (int rank = 0; rank < ranks; ++rank) {
    const WorkOnGpu here(gpus_[index(rank)]);
    forked_->hold_up(compute(rank));
  }
}

void CudaRanks::begin(int rank) {
  ranks_[index(rank)].begun->record(compute(rank));
}

// Copies that nobody has waited for are part of the run.
void CudaRanks::end(int rank) {
  const Rank& own = ranks_[index(rank)];
  for (const CopyStream* copies : {&own.copies, &own.own_copies}) {
    copies->ended->record(copies->stream);
    copies->ended->hold_up(own.compute);
  }
  own.ended->record(own.compute);
}

void CudaRanks::join(cudaStream_t main) {
  for (int rank = 0; rank < ran_; ++rank) ranks_[index(rank)].ended->hold_up(main);
}

void CudaRanks::begin_timing(const volatile int* go, volatile int* gave_up, double seconds) {
  held_ = true;
  ran_ = 0;
  for (const Rank& rank : ranks_) {
    const WorkOnGpu here(rank.gpu);
    cuda_bytes::hold(go, gave_up, seconds, rank.compute);
  }
}

std::vector<double> CudaRanks::seconds() const {
  std::vector<double> seconds;
  for (int rank = 0; rank < ran_; ++rank) {
    const WorkOnGpu here(gpus_[index(rank)]);
    seconds.push_back(ranks_[index(rank)].ended->seconds_since(*ranks_[index(rank)].begun));
  }
  return seconds;
}

void CudaRanks::synchronize() const {
  for (const int gpu : different_gpus_) {
    const WorkOnGpu here(gpu);
    FLASHBENCH_CUDA(cudaDeviceSynchronize());
  }
}

void CudaRanks::evict_caches_of_others(int gpu, size_t bytes) {
  for (const int other : different_gpus_) {
    if (other == gpu) continue;
    const WorkOnGpu here(other);
    Eviction& eviction = evictions_[other];
    const auto rank = std::ranges::find(gpus_, other) - gpus_.begin();
    cudaStream_t stream = compute(static_cast<int>(rank));
    if (eviction.data == nullptr) {
      FLASHBENCH_CUDA(cudaMalloc(&eviction.data, bytes));
      FLASHBENCH_CUDA(
          cudaMalloc(reinterpret_cast<void**>(&eviction.result), sizeof(*eviction.result)));
      FLASHBENCH_CUDA(cudaMemsetAsync(eviction.data, 0, bytes, stream));
    }
    cuda_bytes::read(eviction.data, bytes, eviction.result, stream);
  }
}

int64_t CudaRanks::free_bytes() const {
  int64_t sum = 0;
  for (const int gpu : different_gpus_) {
    const WorkOnGpu here(gpu);
    size_t free = 0, total = 0;
    FLASHBENCH_CUDA(cudaMemGetInfo(&free, &total));
    sum += static_cast<int64_t>(free);
  }
  return sum;
}

// Memory of one rank needs no range of its own.
void* CudaRanks::allocate(size_t bytes, const std::vector<OwnedBytes>& owned) {
  if (owned.size() == 1) {
    const int gpu = gpus_.at(index(owned.front().rank));
    const WorkOnGpu here(gpu);
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error; null tells the caller
      return nullptr;
    }
    check_cuda(status, "cudaMalloc", __FILE__, __LINE__);
    of_one_gpu_[data] = gpu;
    return data;
  }
  std::unique_ptr<CudaRange> range = CudaRange::allocate(bytes, owned, gpus_);
  if (range == nullptr) return nullptr;
  void* const data = range->data();
  ranges_[data] = std::move(range);
  return data;
}

// Waits for all GPUs, because any of them may still use it; cudaFree waits for its own alone.
bool CudaRanks::free(void* data) {
  const auto of_one = of_one_gpu_.find(data);
  if (of_one == of_one_gpu_.end() && !ranges_.contains(data)) return false;
  for (const int gpu : different_gpus_) {
    const WorkOnGpu here(gpu);
    cudaDeviceSynchronize();
  }
  if (of_one == of_one_gpu_.end()) {
    ranges_.erase(data);
  } else {
    const WorkOnGpu here(of_one->second);
    cudaFree(data);
    of_one_gpu_.erase(of_one);
  }
  return true;
}

}  // namespace flashbench
