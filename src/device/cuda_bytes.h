// Small kernels for the device itself: they process plain bytes, or hold back the stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace flashbench::cuda_bytes {

// Adds a hash of bytes [0, bytes) to *sum; `data` is 8-byte aligned. The result does not depend on
// the order of the threads.
void hash(const void* data, size_t bytes, unsigned long long* sum, cudaStream_t);

// Adds to *count how many of the elements (of 2 or 4 bytes) have all bits set.
void count_all_ones(const void* data, int64_t elements, size_t element_bytes,
                    unsigned long long* count, cudaStream_t);

// Flips the highest bit of every element (of 2 or 4 bytes).
void flip_signs(void* data, int64_t elements, size_t element_bytes, cudaStream_t);

// Reads bytes [0, bytes), a multiple of 16, without effect: *sum changes only if they hold a value
// that poison never has.
void read(const void* data, size_t bytes, unsigned long long* sum, cudaStream_t);

// Sets every byte of memory that the GPU can write, whichever GPU's it is.
void fill(void* data, size_t bytes, unsigned char value, cudaStream_t);

// Keeps the stream busy until *go is not 0, or for `seconds`; in that case sets *gave_up. Both are
// in memory that host and device share.
void hold(const volatile int* go, volatile int* gave_up, double seconds, cudaStream_t);

}  // namespace flashbench::cuda_bytes
