// Division by a number that the host knows, by a multiplication.
#pragma once

#include <bit>
#include <cstdint>

namespace flashbench::kernels {

// For dividends from 0 below 2^31. With 2^s >= divisor and m = ceil(2^(31 + s) / divisor), dividend
// * m exceeds the exact multiple by less than 2^(31 + s) / divisor, and so never reaches the next
// quotient.
class Divisor {
 public:
  explicit Divisor(int64_t divisor)  // 1 to 2^30
      : divisor_(static_cast<uint32_t>(divisor)), shift_(31 + std::bit_width(divisor_ - 1)) {
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << shift_) + divisor_ - 1) / divisor_);
  }

  __host__ __device__ int divisor() const { return static_cast<int>(divisor_); }
  __host__ __device__ int quotient(int dividend) const {
    return static_cast<int>(uint64_t{static_cast<uint32_t>(dividend)} * multiplier_ >> shift_);
  }
  __host__ __device__ int remainder(int dividend) const {
    return dividend - quotient(dividend) * divisor();
  }

 private:
  uint32_t divisor_, multiplier_;
  int shift_;
};

}  // namespace flashbench::kernels
