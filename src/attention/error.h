// Failures that reach the user as a message and a documented exit code.
#pragma once

#include <stdexcept>

namespace flashbench {

// A file that cannot be read or written (exit 7).
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Arguments or tensors that do not fit what was asked (exit 2).
class BadInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace flashbench
