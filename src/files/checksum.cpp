#include "files/checksum.h"

#include <fmt/format.h>

#include "attention/error.h"
#include "files/read_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace flashbench {

namespace {

constexpr size_t kMaxFileBytes = size_t{4} << 30;  // larger than any shared object

}  // namespace

uint64_t checksum(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

std::string checksum_text(std::string_view text) {
  return fmt::format("{:016x}", checksum(text.data(), text.size()));
}

std::string file_checksum_text(const std::filesystem::path& path) {
  const std::string bytes = read_file(path, kMaxFileBytes);
  if (bytes.empty()) throw FileError(fmt::format("{}: cannot read: it is empty", path.string()));
  return checksum_text(bytes);
}

}  // namespace flashbench
