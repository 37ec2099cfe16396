// Files that are either the old one or the new one, never half of each; and the steps of which
// other durable files are made.
#pragma once

#include <filesystem>
#include <string_view>

namespace flashbench {

// Throws FileError: "PATH: cannot ACTION: " and what the system says of `error`, an errno.
[[noreturn]] void throw_file_error(const std::filesystem::path& path, std::string_view action,
                                   int error);

// Writes a temporary file in the same folder, syncs it, renames it over `path` and syncs the
// folder. Throws FileError, with the old file intact and the temporary one removed.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Writes all of it to an open file, which `path` names in messages. Throws FileError, with some of
// it written perhaps.
void write_all(int fd, std::string_view content, const std::filesystem::path& path);

// Makes the folder, and those above it, where they are not there. Throws FileError.
void make_folder(const std::filesystem::path& folder);

// Makes what was created or renamed in a folder durable. Throws FileError.
void sync_folder(const std::filesystem::path& folder);

}  // namespace flashbench
