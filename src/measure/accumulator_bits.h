// How many bits the tensor cores keep of sums of 8-bit products, told by sums that they round.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "attention/accumulator.h"
#include "device/device.h"

namespace flashbench {

// One step of a matrix product, all row-major. e4m3 holds each element of `a` and `b`.
struct ProductStep {
  static constexpr int kSize = static_cast<int>(Accumulator::kStepKeys);
  using Matrix = std::array<float, size_t{kSize} * kSize>;

  Matrix a{};     // [rows, products]
  Matrix b{};     // [products, columns]
  Matrix sums{};  // [rows, columns], so far
};

// Adds the products of a step to its sums.
using AddProducts = std::function<void(ProductStep&)>;

// Bits of fraction, at most the 23 of fp32.
struct AccumulatorBits {
  int of_sum = 0;      // that a sum so far keeps where all products are 0; 0 if it is rounded up
  int beside_sum = 0;  // of the sum so far, down to which equal products still count
  int least_beside_product = 0;  // the same of the largest product, the least and the most over
  int most_beside_product = 0;   // its places in the step

  // "fp22" or "fp32", as rows name an accumulator, or "neither fp22 nor fp32".
  std::string accumulator() const;
  bool operator==(const AccumulatorBits&) const = default;
};
AccumulatorBits accumulator_bits(const AddProducts&);

// A sentence that says why the device has no wgmma of e4m3; empty if it has.
std::optional<std::string> why_no_wgmma(const DeviceInfo&);

// Steps of wgmma on a device that has it, which must outlive them. They throw CudaError.
AddProducts wgmma_add_products(Device&);

}  // namespace flashbench
