// Tables of the addresses of all heads' matrices, for cuBLAS's batched products.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashbench::kernels {

// Head h of batch b starts b * batch_step + h / sharers * head_step bytes after `data`.
struct HeadAddresses {
  const void* data = nullptr;
  int64_t batch_step = 0, head_step = 0, sharers = 1;
};

// table [3, batch, heads] receives the addresses of a, b and c.
void write_head_addresses(const HeadAddresses& a, const HeadAddresses& b, const HeadAddresses& c,
                          int64_t batch, int64_t heads, const void** table, cudaStream_t);

}  // namespace flashbench::kernels
