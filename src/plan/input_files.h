// What the files hold that cases read their inputs from. A case's key has only their paths.
#pragma once

#include <nlohmann/json.hpp>

#include <vector>

#include "plan/config.h"

namespace flashbench {

// The XXH3-64 of each .npy file of Q, K, V and dO, by path; an empty object if there are none.
// Throws FileError.
nlohmann::ordered_json input_files(const std::vector<Case>&);

}  // namespace flashbench
