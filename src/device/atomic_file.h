// Output files. A regular file is either the old one or the new one, never half of each; whatever
// else a path leads to, a device or a pipe, is written to and stays what it is. And the steps of
// which other durable files are made.
#pragma once

#include <filesystem>
#include <string_view>

namespace flashbench {

// Throws FileError: "PATH: cannot ACTION: " and what the system says of `error`, an errno.
[[noreturn]] void throw_file_error(const std::filesystem::path& path, std::string_view action,
                                   int error);

// Follows links. Replaces a regular file, or makes one: writes a temporary file in the same folder,
// syncs it, renames it over the old one, whose mode and owner it takes, and syncs the folder.
// Throws FileError, with the old file intact and the temporary one removed; also for a read-only
// file, even where the system would let root write to it. What is no regular file is written to
// directly.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Throws FileError if it is clear by now that write_file_atomically could not write this file. To
// be called before the work whose result the file will hold.
void require_writable(const std::filesystem::path& path);

// Writes all of it to an open file, which `path` names in messages. Throws FileError, with some of
// it written perhaps.
void write_all(int fd, std::string_view content, const std::filesystem::path& path);

// Makes the folder, and those above it, where they are not there. Throws FileError.
void make_folder(const std::filesystem::path& folder);

// Makes what was created or renamed in a folder durable. Throws FileError.
void sync_folder(const std::filesystem::path& folder);

}  // namespace flashbench
