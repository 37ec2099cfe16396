// A shared library that is opened on first use.
#pragma once

#include <string>
#include <vector>

namespace flashbench {

// The library stays open until the process ends, unless `close` is called.
class SharedLibrary {
 public:
  // Opens the first of these that exists: names for the loader to search, or paths.
  explicit SharedLibrary(const std::vector<std::string>& places);

  // Sets `function` to the entry point with this name, or to null.
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(symbol(name));
  }

  // For code that looks entry points up itself; null if none of the places can be opened.
  void* handle() const { return handle_; }

  // The file that was opened.
  std::string path() const;

  // Closes a library that is no use. Nothing that was found in it may be called afterwards.
  void close();

  // Why the library cannot be used: none of the places can be opened, or an entry point is missing.
  // Empty if it can be used.
  const std::string& error() const { return error_; }

 private:
  void* symbol(const char* name);

  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace flashbench
