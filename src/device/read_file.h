// Input files that are read as a whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace flashbench {

// A pipe is read to its end, if somebody writes to it. "-" is standard input. Throws FileError,
// also for more than `most_bytes`.
std::string read_file(const std::filesystem::path& path, size_t most_bytes);

}  // namespace flashbench
