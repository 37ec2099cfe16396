#include "device/checksum.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace flashbench {

uint64_t checksum(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

std::string checksum_text(std::string_view text) {
  return fmt::format("{:016x}", checksum(text.data(), text.size()));
}

}  // namespace flashbench
