// The GPUs that share problems: each rank's streams, and when its part of a run began and ended.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "device/cuda_event.h"
#include "device/cuda_range.h"
#include "device/device.h"

namespace flashbench {

class CudaRanks {
 public:
  // One rank for each, two or more; a GPU that is named twice has two ranks. Throws NoDevice if the
  // GPUs are of different kinds, or cannot read each other's memory.
  explicit CudaRanks(const std::vector<int>& gpus);
  ~CudaRanks();
  CudaRanks(const CudaRanks&) = delete;
  CudaRanks& operator=(const CudaRanks&) = delete;

  const std::vector<int>& gpus() const { return gpus_; }
  const std::vector<int>& different_gpus() const { return different_gpus_; }
  const DeviceInfo& info(int rank) const { return ranks_[index(rank)].info; }
  cudaStream_t compute(int rank) const { return ranks_[index(rank)].compute; }
  // For copies from other ranks, in addition from each of them at once, and for copies of the
  // rank's own memory. Nothing is left on those of the second kind that is not awaited on the
  // first.
  cudaStream_t copies(int rank) const { return ranks_[index(rank)].copies.stream; }
  cudaStream_t copies_at_once(int rank, int from) const {
    return ranks_[index(rank)].copies_at_once[index(from)];
  }
  cudaStream_t own_copies(int rank) const { return ranks_[index(rank)].own_copies.stream; }

  // A run of the first `ranks` ranks, behind what is on the stream `main`, from which it begins
  // anew; what follows on `main` waits for the run. begin() and end() are of the rank's own thread.
  void fork(cudaStream_t main, int ranks);
  void begin(int rank);
  void end(int rank);
  void join(cudaStream_t main);

  // Holds up every rank until *go is not 0, as cuda_bytes::hold does; nothing may be under way. The
  // runs from here to end_timing() begin together then, without waiting for `main`.
  void begin_timing(const volatile int* go, volatile int* gave_up, double seconds);
  void end_timing() { held_ = false; }

  // The ranks of the last run since begin_timing(); 0 if there was none.
  int ran() const { return ran_; }
  // Of the last run, which has ended: each rank's seconds from its own begin to its own end.
  std::vector<double> seconds() const;

  // Whether each GPU can add to floats in the memory of the others.
  bool add_to_others() const;

  void synchronize() const;
  void evict_caches_of_others(int gpu, size_t bytes);
  int64_t free_bytes() const;

  // Memory of the ranks that have it; null if one is short of it.
  void* allocate(size_t bytes, const std::vector<OwnedBytes>&);
  // Whether this memory is of allocate(), and so has been freed.
  bool free(void* data);

 private:
  struct CopyStream {
    cudaStream_t stream = nullptr;
    std::unique_ptr<CudaEvent> ended;
  };
  struct Rank {
    int gpu = 0;
    DeviceInfo info;
    cudaStream_t compute = nullptr;
    CopyStream copies, own_copies;
    std::vector<cudaStream_t> copies_at_once;  // by the other rank
    std::unique_ptr<CudaEvent> begun, ended;
  };
  struct Eviction {
    void* data = nullptr;
    unsigned long long* result = nullptr;
  };

  static size_t index(int rank) { return static_cast<size_t>(rank); }
  void make_rank(int gpu);
  static CopyStream make_copy_stream();

  std::vector<int> gpus_, different_gpus_;
  std::vector<Rank> ranks_;
  std::unique_ptr<CudaEvent> forked_;
  std::map<void*, std::unique_ptr<CudaRange>> ranges_;
  std::map<void*, int> of_one_gpu_;
  std::map<int, Eviction> evictions_;  // by GPU
  bool held_ = false;
  int ran_ = 0;
};

}  // namespace flashbench
