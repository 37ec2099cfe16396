// One range of addresses whose pages are in the memory of several GPUs.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "device/page_owners.h"

namespace flashbench {

// All of the GPUs can read and write all of it; a page is as fast as the memory that it is in.
class CudaRange {
 public:
  // `gpus` has the GPU of each rank. Returns null if one of them is short of memory. Throws
  // CudaError.
  static std::unique_ptr<CudaRange> allocate(size_t bytes, const std::vector<OwnedBytes>&,
                                             const std::vector<int>& gpus);
  ~CudaRange();
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;

  void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  explicit CudaRange(size_t bytes);
  bool map(const OwnedPages&, size_t page_bytes, int gpu);

  CUdeviceptr address_ = 0;
  size_t bytes_, mapped_ = 0;  // mapped: from the first byte on
};

}  // namespace flashbench
