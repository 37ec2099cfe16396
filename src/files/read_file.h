// Reads whole input files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace flashbench {

// Reads a pipe to its end, if a process writes to it. "-" is standard input. Throws FileError, also
// for more than `most_bytes`.
std::string read_file(const std::filesystem::path& path, size_t most_bytes);

}  // namespace flashbench
