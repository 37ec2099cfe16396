// Writes the tensors of a case as .npy files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"

namespace flashbench {

// Writes to `folder`, which is created if necessary: q.npy, k.npy, v.npy and, backward, do.npy; or
// o.npy and logsumexp.npy, or dq.npy, dk.npy, dv.npy. A tensor is written in its own layout, as
// [batch, length, heads, head_dim], [batch, heads, length, head_dim] or [tokens, heads, head_dim],
// bf16 as uint16 bits; a logsumexp as [batch, q_heads, q_len] or [q_heads, tokens]. Beside the
// inputs, cu_seqlens_q.npy and cu_seqlens_k.npy where requests have lengths of their own. A paged
// k.npy or v.npy is the pool, [pages, page_size, heads, head_dim] or [pages, heads, page_size,
// head_dim], beside block_table.npy. Throws FileError.
void dump_inputs(const std::filesystem::path& folder, const Problem&, const Inputs&);
void dump_outputs(const std::filesystem::path& folder, const Problem&, const Outputs&);

// Every file that these write for a case that is dumped to `folder`, whatever it is, and the
// outputs of the providers to folders in it.
std::vector<std::filesystem::path> files_of_dump(const std::filesystem::path& folder,
                                                 const std::vector<std::string>& providers);

}  // namespace flashbench
