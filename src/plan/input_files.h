// What the files hold that cases read their inputs from. A case's key has only their paths.
#pragma once

#include <nlohmann/json.hpp>

#include <vector>

#include "plan/config.h"

namespace flashbench {

// Adds "inputs" to a result's meta: the XXH3-64 of each .npy file of Q, K, V and dO, by path.
// Nothing if there are none. Reads all of these files; throws FileError.
void add_input_files(nlohmann::ordered_json& meta, const std::vector<Case>&);

}  // namespace flashbench
