// Rounds the inputs of a problem to e4m3 on a GPU, by its recipe (Problem::quantize).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace flashbench::kernels::sm90 {

// Whether a head_dim has kernels that round.
bool is_quantized_head_dim(int64_t head_dim);

size_t quantized_bytes(const Problem&);

// Of the kernels that quantize() launches, once each.
std::vector<KernelFacts> quantize_facts(const Problem&, const DeviceInfo&);

// Launches the kernels that round Q, K and V, and let the next launch start early; if
// Launch::part is the attention, an earlier launch has. The workspace
// begins as kPoisonByte, or as the last launch left it. The bytes of Q and K are in the workspace,
// those of V at `transposed_v` (TransposeArguments::to); the views have their factors.
Inputs quantize(const Launch&, const Inputs&, void* workspace, uint8_t* transposed_v, Stream);

}  // namespace flashbench::kernels::sm90
