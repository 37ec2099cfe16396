// Copies keys or values out of the pages of a cache, for kernels that follow no block table.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/tensors.h"

namespace flashbench::kernels {

// The first `to.length` rows of each request of the paged tensor `from`, whose batch, heads and
// head_dim `to` has. The block table is read on the device.
void gather_pages(const ConstTensorView& from, const TensorView& to, cudaStream_t);

}  // namespace flashbench::kernels
