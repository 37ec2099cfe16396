// Linux's text files about the system and the process.
#pragma once

#include <cstdint>
#include <string_view>

namespace flashbench {

// The value in bytes of a field such as "MemAvailable:" of /proc/meminfo, given there in kibibytes;
// 0 if the file or the field is not there.
int64_t proc_bytes(const char* path, std::string_view field);

}  // namespace flashbench
