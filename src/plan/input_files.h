// The files that a sweep reads, and what those hold that cases read their inputs from: a case's key
// has only their paths.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "plan/config.h"

namespace flashbench {

// Adds "inputs" to a result's meta: the XXH3-64 of each .npy file of Q, K, V and dO, by path.
// Nothing if there are none. Reads all of these files; throws FileError.
void add_input_files(nlohmann::ordered_json& meta, const std::vector<Case>&);

// The paths in {"file": PATH}, which lengths and block tables may be, anywhere in this JSON.
std::vector<std::string> files_named_in(const nlohmann::ordered_json&);

// The paths of all files that a sweep reads: the config's, tensors, plugins, the program.
std::vector<std::string> files_read_by(const SweepConfig&);

}  // namespace flashbench
