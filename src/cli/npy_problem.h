// Takes the shapes of a problem from .npy tensors.
#pragma once

#include <memory>
#include <string>

#include "attention/problem.h"
#include "inputs/inputs.h"

namespace flashbench {

// Sets the sizes of `problem` from the shapes of the files, read in its layout, and its dtype from
// their type: float32 is fp32, float16 fp16, uint16 bf16. Where the problem has lengths, the files
// must have as many tokens. Where it has a block table, the files of K and V are pools of pages,
// which give page_size; kv_len or the lengths are the problem's. Throws BadInput, FileError.
void take_shapes(Problem& problem, const InputSpec& files);

// The lengths of FlashAttention's cu_seqlens_q and cu_seqlens_k: int32, each request's first token
// and then the total. Throws BadInput, FileError.
std::shared_ptr<const Lengths> read_cu_seqlens(const std::string& q_path,
                                               const std::string& k_path);

}  // namespace flashbench
