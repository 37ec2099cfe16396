// A problem whose shapes come from .npy tensors, and tensors written as .npy.
#pragma once

#include <filesystem>
#include <string>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/inputs.h"

namespace flashbench {

// Fills the sizes of `problem` from the shapes of the files, read in its layout, and its dtype from
// their type: float32 is fp32, float16 fp16, uint16 bf16. Throws BadInput, FileError.
void take_shapes(Problem& problem, const InputSpec& files);

// Writes a tensor in its own layout as [batch, length, heads, head_dim] or [batch, heads, length,
// head_dim]; bf16 as uint16 bits. Throws FileError.
void write_tensor(const std::filesystem::path& path, ConstTensorView tensor, Layout layout);

// Writes a logsumexp as [batch, q_heads, q_len].
void write_logsumexp(const std::filesystem::path& path, const float* logsumexp, const Problem&);

}  // namespace flashbench
