#include "files/gzip.h"

#include "attention/error.h"
#include "fuzz/targets.h"

namespace flashbench::fuzz {

void gzip(std::string_view bytes) {
  constexpr size_t kMost = size_t{1} << 20;
  try {
    require(gunzip(bytes, kMost, "fuzz.gz").size() <= kMost, "more than the limit");
    require(is_gzip(bytes), "what was decompressed does not begin as gzip does");
  } catch (const FileError&) {
  }
}

}  // namespace flashbench::fuzz
