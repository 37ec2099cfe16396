// Small kernels that the device itself needs: over plain bytes, and to hold work back.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace flashbench::cuda_bytes {

// Adds a hash of bytes [0, bytes) to *sum; `data` is aligned to 8 bytes. The sum does not depend on
// the order in which threads arrive.
void hash(const void* data, size_t bytes, unsigned long long* sum, cudaStream_t);

// Adds to *count how many of the elements (of 2 or 4 bytes) have all bits set.
void count_all_ones(const void* data, int64_t elements, size_t element_bytes,
                    unsigned long long* count, cudaStream_t);

// Flips the highest bit of every element (of 2 or 4 bytes).
void flip_signs(void* data, int64_t elements, size_t element_bytes, cudaStream_t);

// Reads bytes [0, bytes), a multiple of 16, and leaves no trace of them: *sum changes only if they
// hold what poison never is.
void read(const void* data, size_t bytes, unsigned long long* sum, cudaStream_t);

// Keeps the stream busy until *go is not 0, or for `seconds`; then *gave_up is set. Both are memory
// that host and device see.
void hold(const volatile int* go, volatile int* gave_up, double seconds, cudaStream_t);

}  // namespace flashbench::cuda_bytes
