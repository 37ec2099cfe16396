// A hash that is part of keys, so that it must stay the same.
#pragma once

#include <cstdint>

namespace flashbench {

// FNV-1a (Fowler, Noll and Vo).
class Hash {
 public:
  void add(int64_t number) {
    for (int byte = 0; byte < 8; ++byte) {
      value_ = (value_ ^ (static_cast<uint64_t>(number) >> (8 * byte) & 0xff)) * 0x100000001b3;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace flashbench
