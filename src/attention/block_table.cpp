#include "attention/block_table.h"

#include <fmt/format.h>

#include "attention/hash.h"

namespace flashbench {

BlockTable::BlockTable(int64_t requests, int64_t width, int64_t pages)
    : requests_(requests),
      width_(width),
      pages_(pages),
      entries_(static_cast<size_t>(requests * width), kNoPage) {}

BlockTable BlockTable::in_pool_of(int64_t pages) const {
  BlockTable same = *this;
  same.pages_ = pages;
  return same;
}

std::string BlockTable::id() const {
  Hash hash;
  for (const int32_t entry : entries_) hash.add(entry);
  return fmt::format("{}pages-{}x{}-{:016x}", pages_, requests_, width_, hash.value());
}

}  // namespace flashbench
