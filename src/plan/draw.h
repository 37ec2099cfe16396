// What random cases are drawn from.
#pragma once

#include <cstdint>
#include <iterator>
#include <random>

namespace flashbench {

// Draws by remainders, because the standard's distributions differ between libraries.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int64_t one_in) { return integer(1, one_in) == 1; }

  template <typename Values>
  auto one_of(const Values& values) {
    return values[static_cast<size_t>(integer(0, static_cast<int64_t>(std::size(values)) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace flashbench
