// Takes the shapes of a problem from .npy tensors.
#pragma once

#include "attention/problem.h"
#include "device/inputs.h"

namespace flashbench {

// Sets the sizes of `problem` from the shapes of the files, read in its layout, and its dtype from
// their type: float32 is fp32, float16 fp16, uint16 bf16. Throws BadInput, FileError.
void take_shapes(Problem& problem, const InputSpec& files);

}  // namespace flashbench
