#include "measure/accumulator_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace flashbench {

namespace {

constexpr int kFp32FractionBits = 23;
constexpr int kLargeExponent = 16;  // of 256 times 256
constexpr size_t kPlaces = ProductStep::kSize;

struct Factors {
  float a, b;
};

// Two powers of two, normal numbers of e4m3, whose product is this one.
Factors factors_of(int exponent) {
  const int half = exponent >> 1;
  return {std::ldexp(1.0f, exponent - half), std::ldexp(1.0f, half)};
}

size_t diagonal(size_t place) {
  return place * kPlaces + place;
}

// A step whose products are all 2^exponent, and whose sums are 0.
ProductStep equal_products(int exponent) {
  ProductStep step;
  const Factors factors = factors_of(exponent);
  step.a.fill(factors.a);
  step.b.fill(factors.b);
  return step;
}

// For each place on the diagonal, how far below a large term equal products raise its sum: the last
// bit of the term up to which they do. `add_large` puts the term in.
std::array<int, kPlaces> last_bits(const AddProducts& add,
                                   const std::function<void(ProductStep&)>& add_large) {
  std::array<int, kPlaces> last{};
  for (int bit = 1; bit <= kFp32FractionBits; ++bit) {
    ProductStep step = equal_products(kLargeExponent - bit);
    add_large(step);
    add(step);
    for (size_t place = 0; place < kPlaces; ++place) {
      const bool counts = step.sums[diagonal(place)] > std::ldexp(1.0f, kLargeExponent);
      if (counts && last[place] == bit - 1) last[place] = bit;
    }
  }
  return last;
}

// What is left of a sum in which every bit of the fraction is set.
int bits_of_sum(const AddProducts& add) {
  ProductStep step;
  step.sums.fill(2 - std::ldexp(1.0f, -kFp32FractionBits));
  add(step);
  const uint32_t fraction = std::bit_cast<uint32_t>(step.sums[0]) << (32 - kFp32FractionBits);
  return std::countl_one(fraction);
}

}  // namespace

std::string AccumulatorBits::accumulator() const {
  const auto all_are = [&](int bits) { return *this == AccumulatorBits{bits, bits, bits, bits}; };
  const std::string truncated = Accumulator{.truncates = true}.text(), exact = Accumulator{}.text();
  if (all_are(Accumulator::kFractionBits)) return truncated;
  if (all_are(kFp32FractionBits)) return exact;
  return "neither " + truncated + " nor " + exact;
}

AccumulatorBits accumulator_bits(const AddProducts& add) {
  const auto beside_sum =
      last_bits(add, [](ProductStep& step) { step.sums.fill(std::ldexp(1.0f, kLargeExponent)); });
  // The large product is in another place of the step in each row and column of the diagonal.
  const auto beside_product = last_bits(add, [](ProductStep& step) {
    const Factors large = factors_of(kLargeExponent);
    for (size_t place = 0; place < kPlaces; ++place) {
      step.a[diagonal(place)] = large.a;
      step.b[diagonal(place)] = large.b;
    }
  });
  return {.of_sum = bits_of_sum(add),
          .beside_sum = std::ranges::min(beside_sum),
          .least_beside_product = std::ranges::min(beside_product),
          .most_beside_product = std::ranges::max(beside_product)};
}

std::optional<std::string> why_no_wgmma(const DeviceInfo& device) {
  if (device.compute_capability == 90) return std::nullopt;
  return "needs a GPU of compute capability 9.0: wgmma is Hopper's alone";
}

}  // namespace flashbench
