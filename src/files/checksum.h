// XXH3-64 hashes: fast, and sufficient against accidental changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace flashbench {

uint64_t checksum(const void* data, size_t bytes, uint64_t seed = 0);

// As 16 hexadecimal digits.
std::string checksum_text(std::string_view text);

// The same for the bytes of a file. Throws FileError.
std::string file_checksum_text(const std::filesystem::path&);

}  // namespace flashbench
