// Files that are either the old one or the new one, never half of each.
#pragma once

#include <filesystem>
#include <string_view>

namespace flashbench {

// Writes a temporary file in the same folder, syncs it, renames it over `path` and syncs the
// folder. Throws FileError, with the old file intact and the temporary one removed.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace flashbench
