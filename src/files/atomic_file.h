// Output files, and the steps from which other durable files are made. Readers of a regular file
// see either the old file or the new one, never half of each. Anything else that a path leads to,
// such as a device or a pipe, is written to directly.
#pragma once

#include <filesystem>
#include <string_view>

namespace flashbench {

// Throws FileError: "PATH: cannot ACTION: " and the system's text for `error`, an errno.
[[noreturn]] void throw_file_error(const std::filesystem::path& path, std::string_view action,
                                   int error);

// Follows links. Replaces or creates a regular file: writes a temporary file in the same folder,
// gives it the mode and owner of the old file, syncs it, renames it over the old one, and syncs the
// folder. Throws FileError, with the old file intact and the temporary one removed; also for a
// read-only file, even if the system would let root write to it. Writes directly to anything that
// is not a regular file.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Throws FileError if it is already clear that write_file_atomically could not write this file.
// Call it before the work whose result goes to the file.
void require_writable(const std::filesystem::path& path);

// Writes all of `content` to an open file; messages name it `path`. Throws FileError, possibly
// after writing a part.
void write_all(int fd, std::string_view content, const std::filesystem::path& path);

// Creates the folder and its parents if they do not exist. Throws FileError.
void make_folder(const std::filesystem::path& folder);

// Makes files created or renamed in a folder durable. Throws FileError.
void sync_folder(const std::filesystem::path& folder);

}  // namespace flashbench
