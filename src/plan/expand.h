// Blocks of cases multiplied out, and the checks that a schema cannot express.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <vector>

#include "plan/config.h"

namespace flashbench {

// Bounds on one case beyond the schema's on each axis, far above what any device holds, such that
// counts of bytes stay well inside 64 bits.
inline constexpr double kMaxTensorElements = 1099511627776.0;  // 2^40, one tensor
inline constexpr double kMaxScores = 1125899906842624.0;       // 2^50, batch*q_heads*q_len*kv_len

// The cases of `blocks` (the config's "cases", an array), block after block; within a block `pass`
// varies slowest, then dtype, mask, layout, head_dim, scale, heads, batch, lengths, distribution,
// placement and seed. A case that comes up again is left out. Paths of tensors are taken relative
// to `folder`.
//
// Blocks that `issues` already finds fault with are passed over; what is wrong with the others is
// added to it.
std::vector<Case> expand_cases(const nlohmann::ordered_json& blocks,
                               const std::filesystem::path& folder,
                               std::vector<ConfigIssue>& issues);

}  // namespace flashbench
