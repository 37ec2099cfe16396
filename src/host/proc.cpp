#include "host/proc.h"

#include <fstream>
#include <sstream>
#include <string>

namespace flashbench {

int64_t proc_bytes(const char* path, std::string_view field) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(field.size()));
    int64_t kibibytes = 0;
    words >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

}  // namespace flashbench
