// Addresses in the shared state space.
#pragma once

#include <cstdint>

namespace flashbench::ptx {

// cvta.to.shared: the 32-bit shared-memory address of a generic pointer into shared memory.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace flashbench::ptx
