// Clusters: thread blocks that run at the same time and read each other's shared memory (sm_90).
// A thread block that is launched without a cluster is one of its own.
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// The number of this thread block in its cluster.
__device__ __forceinline__ int cluster_ctarank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The number of this thread block's cluster in the third dimension of the grid.
__device__ __forceinline__ int clusterid_z() {
  int id;
  asm volatile("mov.u32 %0, %%clusterid.z;" : "=r"(id));
  return id;
}

// Arrives at the cluster's barrier. What this thread has written is visible after the wait.
__device__ __forceinline__ void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
}

// The same, but of what this thread has written, only mbarriers whose initialisation it has fenced
// are visible after the wait.
__device__ __forceinline__ void barrier_cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" : : : "memory");
}

// Waits until all threads of the cluster have arrived.
__device__ __forceinline__ void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
}

// The address, for the functions below, of what lies at shared address `address` in thread block
// `rank`.
__device__ __forceinline__ uint32_t mapa(uint32_t address, int rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Loads from shared memory of a thread block of the cluster.
__device__ __forceinline__ int ld_shared_cluster(uint32_t address) {
  int value;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// Stores to shared memory of a thread block of the cluster. `address` is aligned to the size.
__device__ __forceinline__ void st_shared_cluster(uint32_t address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" : : "r"(address), "f"(value) : "memory");
}
__device__ __forceinline__ void st_shared_cluster_v2(uint32_t address, float2 v) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};"
               :
               : "r"(address), "f"(v.x), "f"(v.y)
               : "memory");
}

// Arrives at the mbarrier at `barrier`. Nothing that this thread has written becomes visible by it.
__device__ __forceinline__ void mbarrier_arrive_cluster_relaxed(uint32_t barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];"
               :
               : "r"(barrier)
               : "memory");
}

// Copies `bytes` bytes (a multiple of 16) from shared address `from` to `to`, both 16-byte aligned,
// without waiting. They count towards those that the mbarrier at `barrier`, in the same thread
// block as `to`, expects.
__device__ __forceinline__ void cp_async_bulk_to_cluster(uint32_t to, uint32_t from, uint32_t bytes,
                                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];"
      :
      : "r"(to), "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Stores floats to shared memory of a thread block of the cluster, without waiting. `address` is
// aligned to their size. Their bytes count towards those that the mbarrier at `barrier`, in the
// same thread block, expects.
__device__ __forceinline__ void st_async_v2(uint32_t address, float2 v, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
               :
               : "r"(address), "f"(v.x), "f"(v.y), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void st_async_v4(uint32_t address, float4 v, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
      :
      : "r"(address), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}

}  // namespace flashbench::ptx
