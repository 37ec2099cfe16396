#include "host/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace flashbench {

SharedLibrary::SharedLibrary(const std::vector<std::string>& places) {
  std::string first;
  for (const std::string& place : places) {
    handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    if (first.empty()) first = dlerror();
  }
  error_ = first;
}

void* SharedLibrary::symbol(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* found = dlsym(handle_, name);
  if (found == nullptr) error_ = fmt::format("it has no {}", name);
  return found;
}

}  // namespace flashbench
