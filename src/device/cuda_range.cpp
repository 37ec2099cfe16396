#include "device/cuda_range.h"

#include <algorithm>

#include "device/cuda_driver.h"
#include "device/gpu_list.h"

namespace flashbench {

namespace {

CUmemAllocationProp memory_of(int gpu) {
  CUmemAllocationProp memory{};
  memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu};
  return memory;
}

// What suits all of the GPUs: 2 MiB so far.
size_t page_bytes_of(const std::vector<int>& gpus) {
  size_t most = 1;
  for (const int gpu : gpus) {
    const CUmemAllocationProp memory = memory_of(gpu);
    size_t bytes = 0;
    FLASHBENCH_CUDA_DRIVER(allocation_granularity, &bytes, &memory,
                           CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    most = std::max(most, bytes);
  }
  return most;
}

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

std::unique_ptr<CudaRange> CudaRange::allocate(size_t bytes, const std::vector<OwnedBytes>& owned,
                                               const std::vector<int>& gpus) {
  const std::vector<int> once = different(gpus);
  const size_t page_bytes = page_bytes_of(once);
  std::unique_ptr<CudaRange> range(new CudaRange(round_up(bytes, page_bytes)));
  for (const OwnedPages& pages : pages_by_owner(bytes, page_bytes, owned)) {
    if (!range->map(pages, page_bytes, gpus.at(static_cast<size_t>(pages.rank)))) return nullptr;
  }
  std::vector<CUmemAccessDesc> access;
  for (const int gpu : once) {
    access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu},
                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  FLASHBENCH_CUDA_DRIVER(set_access, range->address_, range->bytes_, access.data(), access.size());
  return range;
}

CudaRange::CudaRange(size_t bytes) : bytes_(bytes) {
  FLASHBENCH_CUDA_DRIVER(reserve_addresses, &address_, bytes_, size_t{0}, CUdeviceptr{0}, 0ull);
}

// The mapping keeps the memory, so that its handle can go at once.
bool CudaRange::map(const OwnedPages& pages, size_t page_bytes, int gpu) {
  const CUmemAllocationProp memory = memory_of(gpu);
  const size_t bytes = pages.count * page_bytes;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult created = cuda_driver().create_memory(&handle, bytes, &memory, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check_cuda_driver(created, "cuMemCreate", __FILE__, __LINE__);
  const CUresult mapped =
      cuda_driver().map_memory(address_ + pages.first * page_bytes, bytes, 0, handle, 0);
  cuda_driver().release_memory(handle);
  check_cuda_driver(mapped, "cuMemMap", __FILE__, __LINE__);
  mapped_ += bytes;
  return true;
}

CudaRange::~CudaRange() {
  if (mapped_ > 0) cuda_driver().unmap_memory(address_, mapped_);
  cuda_driver().free_addresses(address_, bytes_);
}

}  // namespace flashbench
