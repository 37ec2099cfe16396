// Linux's text files about the system and the process.
#pragma once

#include <cstdint>
#include <string_view>

namespace flashbench {

// Returns the value in bytes of a field such as "MemAvailable:" of /proc/meminfo, where it is in
// kibibytes; 0 if the file or the field does not exist.
int64_t proc_bytes(const char* path, std::string_view field);

}  // namespace flashbench
