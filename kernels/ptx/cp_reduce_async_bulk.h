// cp.reduce.async.bulk: TMA adds shared memory to global memory (sm_90).
// docs.nvidia.com/cuda/parallel-thread-execution: "cp.reduce.async.bulk"
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// Atomically adds `bytes` bytes of floats at shared address `from` to those at `to`. Both addresses
// are 16-byte aligned; `bytes` is a multiple of 16. Belongs to this thread's group of bulk copies.
__device__ __forceinline__ void cp_reduce_async_bulk_add_f32(float* to, uint32_t from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :
               : "l"(to), "r"(from), "r"(bytes)
               : "memory");
}

}  // namespace flashbench::ptx
