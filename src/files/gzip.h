// Files compressed by gzip (RFC 1952).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace flashbench {

// Whether the bytes begin as a gzip file does. Text in UTF-8 cannot.
bool is_gzip(std::string_view bytes);

// Returns the content of all members, as gunzip does. Throws FileError, naming the source, if the
// bytes are damaged or cut off, or if the content has more than `most_bytes`.
std::string gunzip(std::string_view bytes, size_t most_bytes, const std::string& source);

}  // namespace flashbench
