#include "device/checksum.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "attention/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace flashbench {

uint64_t checksum(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

std::string checksum_text(std::string_view text) {
  return fmt::format("{:016x}", checksum(text.data(), text.size()));
}

std::string file_checksum_text(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (file && file.peek() != std::ifstream::traits_type::eof()) bytes << file.rdbuf();
  if (!file.is_open() || file.bad() || bytes.view().empty()) {
    throw FileError(fmt::format("cannot read {}: {}", path.string(),
                                errno != 0 ? std::strerror(errno) : "it is empty"));
  }
  return checksum_text(bytes.view());
}

}  // namespace flashbench
