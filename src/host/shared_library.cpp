#include "host/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

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

std::string SharedLibrary::path() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return "";
  return map->l_name;
}

void SharedLibrary::close() {
  if (handle_ != nullptr) dlclose(handle_);
  handle_ = nullptr;
}

void* SharedLibrary::symbol(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* found = dlsym(handle_, name);
  if (found == nullptr) error_ = fmt::format("it has no {}", name);
  return found;
}

}  // namespace flashbench
