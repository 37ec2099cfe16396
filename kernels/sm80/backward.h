// Attention backward on tensor cores of sm_80 and later. backward.cpp makes the launches of
// kernels/backward/backward.h, with backward_main.cu between them.
#pragma once

#include <span>

#include "kernels/attention.h"
#include "kernels/backward/backward.h"
#include "kernels/common/launch.h"

namespace flashbench::kernels::sm80 {

// The main kernel for one head_dim and one choice of block sizes. Each thread block owns blocks.kv
// keys of one K/V head.
struct MainVariant {
  int head_dim;
  BlockSizes blocks;
  int shared_bytes;
  CudaKernel<backward::Arguments> kernels[2][2];  // [bf16][deterministic]
};
std::span<const MainVariant> main_variants();

}  // namespace flashbench::kernels::sm80
