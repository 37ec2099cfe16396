// Where a command writes, checked before its work.
#pragma once

#include <string>
#include <vector>

namespace flashbench {

// An output, and the option that names it. "-" is stdout, and an empty path is no output.
struct Output {
  std::string option, path;
};

// Throws BadInput if two outputs lead to the same file or to stdout, or one to a file that the
// command reads; FileError if it is already clear that one could not be written.
void check_outputs(const std::vector<Output>& outputs, const std::vector<std::string>& inputs = {});

// Throws BadInput if the output leads to a file that the command reads.
void require_not_read(const Output&, const std::vector<std::string>& inputs);

// Writes a file, or to stdout if `path` is "-", or nothing if it is empty. Throws FileError.
void write_text(const std::string& path, const std::string& text);

}  // namespace flashbench
