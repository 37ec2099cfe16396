// cp.async.bulk.tensor: TMA copies of tensor boxes between global and shared memory (sm_90).
// docs.nvidia.com/cuda/parallel-thread-execution: "cp.async.bulk.tensor"
#pragma once

#include <cuda.h>

#include <cstdint>

namespace flashbench::ptx {

// L2 eviction policy for the lines that a copy reads (the operand of .L2::cache_hint).
enum class CachePolicy : uint64_t {
  evict_first = 0x12F0000000000000,
  evict_last = 0x14F0000000000000,
};

// Copies the box at coordinates (c0, ..., c3) to shared address `to`; c0 runs along the contiguous
// dimension. Elements outside the tensor become zeros. The full size of the box counts towards the
// bytes that `barrier` expects.
__device__ __forceinline__ void cp_async_bulk_tensor_4d(uint32_t to, const CUtensorMap& tensor,
                                                        int c0, int c1, int c2, int c3,
                                                        uint32_t barrier, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
      :
      : "r"(to), "l"(&tensor), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(barrier),
        "l"(static_cast<uint64_t>(policy))
      : "memory");
}

// The same for a tensor with five dimensions.
__device__ __forceinline__ void cp_async_bulk_tensor_5d(uint32_t to, const CUtensorMap& tensor,
                                                        int c0, int c1, int c2, int c3, int c4,
                                                        uint32_t barrier, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;"
      :
      : "r"(to), "l"(&tensor), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier),
        "l"(static_cast<uint64_t>(policy))
      : "memory");
}

// The same for a tensor with two dimensions.
__device__ __forceinline__ void cp_async_bulk_tensor_2d(uint32_t to, const CUtensorMap& tensor,
                                                        int c0, int c1, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];"
      :
      : "r"(to), "l"(&tensor), "r"(c0), "r"(c1), "r"(barrier)
      : "memory");
}

// Prefetches the box at coordinates (c0, ..., c3) into the L2 cache.
__device__ __forceinline__ void cp_async_bulk_prefetch_tensor_4d(const CUtensorMap& tensor, int c0,
                                                                 int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];"
               :
               : "l"(&tensor), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// The same for a tensor with five dimensions.
__device__ __forceinline__ void cp_async_bulk_prefetch_tensor_5d(const CUtensorMap& tensor, int c0,
                                                                 int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];"
               :
               : "l"(&tensor), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

// Copies the box from shared address `from` to global memory. Elements outside the tensor are not
// written.
__device__ __forceinline__ void cp_async_bulk_tensor_4d(const CUtensorMap& tensor, int c0, int c1,
                                                        int c2, int c3, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
               :
               : "l"(&tensor), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(from)
               : "memory");
}

// The same for a tensor with five dimensions.
__device__ __forceinline__ void cp_async_bulk_tensor_5d(const CUtensorMap& tensor, int c0, int c1,
                                                        int c2, int c3, int c4, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];"
      :
      : "l"(&tensor), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(from)
      : "memory");
}

// Closes a group of all bulk copies to global memory that this thread started since its last group.
__device__ __forceinline__ void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

// Waits until at most `kPending` of this thread's latest groups have yet to read their shared
// memory. That of the others may then be reused.
template <int kPending = 0>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(kPending) : "memory");
}

// Waits until all of this thread's groups are complete, i.e. their writes have been made.
__device__ __forceinline__ void cp_async_bulk_wait_group_0() {
  asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
}

// Makes this thread's ordinary writes to shared memory visible to the async proxy (TMA).
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

// Orders this thread's earlier accesses to global memory before later TMA accesses that it starts.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" : : : "memory");
}

__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap& tensor) {
  asm volatile("prefetch.tensormap [%0];" : : "l"(&tensor) : "memory");
}

}  // namespace flashbench::ptx
