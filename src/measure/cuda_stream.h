// One launch that reads rows of tensors and writes others, and one that does nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "measure/round_ceilings.h"

namespace flashbench::cuda_stream {

// Strides in bytes, multiples of 16, like the address and the bytes of a row of a head.
struct Tensor {
  unsigned char* data;
  int64_t batch_stride, row_stride, head_stride;
  int heads, row_bytes;
  bool heads_first;      // rows of a head lie behind each other, not heads of a row
  const int32_t* table;  // of pages; null without
  int64_t table_stride;
  unsigned page_size;
};

// A part is one thread block's.
inline constexpr int64_t kPartBytes = int64_t{32} << 10;
inline constexpr int32_t kMostRows = 256;

struct Work {
  Tensor tensors[4];  // by StreamPart::Tensor
  const StreamPart* parts = nullptr;
  int64_t count = 0;
};

void run(const Work&, cudaStream_t);
void nothing(cudaStream_t);

}  // namespace flashbench::cuda_stream
