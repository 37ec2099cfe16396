// A shared library that is opened when it is first needed.
#pragma once

#include <string>
#include <vector>

namespace flashbench {

// Stays open for as long as the process lives.
class SharedLibrary {
 public:
  // The first of these that can be opened: a name for the loader to find, or a path.
  explicit SharedLibrary(const std::vector<std::string>& places);

  // Sets `function` to the entry point of that name, or to null.
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(symbol(name));
  }

  // Why it cannot be used: none of the places, or an entry point that it does not have; empty if it
  // can.
  const std::string& error() const { return error_; }

 private:
  void* symbol(const char* name);

  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace flashbench
