// Vectorised conversions against the scalar ones, for every bit pattern.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "attention/half.h"
#include "kernels/naive/softmax.h"
#include "tests/kernels/run_kernel.h"

namespace flashbench::kernels {
namespace {

constexpr int64_t kPatterns = 1 << 16;

// A view of `data` as rows of eight elements.
template <typename Data>
BasicTensorView<Data> as_rows(Data* data, Dtype dtype, int64_t elements) {
  return dense_view(data, dtype, Layout::bhsd, 1, 1, elements / 8, 8);
}

TEST(Rows, ReadEvery16BitPatternAsTheScalarConversionDoes) {
  std::vector<uint16_t> halves(kPatterns);
  for (size_t i = 0; i < kPatterns; ++i) halves[i] = static_cast<uint16_t>(i);
  for_every_target([&](const std::string& target) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      std::vector<float> floats(kPatterns);
      naive_to_fp32(as_rows<const void>(halves.data(), dtype, kPatterns), 0, 0, 0, kPatterns / 8,
                    floats.data());
      for (size_t i = 0; i < kPatterns; ++i) {
        const float expected = load_element(halves.data(), dtype, static_cast<int64_t>(i));
        ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(expected))
            << target << " " << name(dtype) << " " << i;
      }
    }
  });
}

TEST(Rows, ReadEveryByteAsTheScalarConversionDoes) {
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  for_every_target([&](const std::string& target) {
    for (const float factor : {1.0f, 0.37f}) {
      ConstTensorView view = as_rows<const void>(bytes.data(), Dtype::e4m3, 256);
      view.descales = {&factor, 0, 0, 0};
      std::vector<float> floats(256);
      naive_to_fp32(view, 0, 0, 0, 256 / 8, floats.data());
      for (size_t i = 0; i < bytes.size(); ++i) {
        const float expected = load_element(bytes.data(), Dtype::e4m3, static_cast<int64_t>(i));
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(floats[i])
                                         : std::bit_cast<uint32_t>(floats[i]) ==
                                               std::bit_cast<uint32_t>(expected * factor))
            << target << " " << i;
      }
    }
  });
}

// Every 16-bit number, the halfway points between neighbours, and the values next to those.
TEST(Rows, RoundAsTheScalarConversionDoes) {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    std::vector<float> floats;
    for (int64_t pattern = 0; pattern < kPatterns; ++pattern) {
      const auto bits = static_cast<uint16_t>(pattern);
      const uint32_t exact = std::bit_cast<uint32_t>(load_element(&bits, dtype, 0));
      const uint32_t half = dtype == Dtype::fp16 ? 1u << 12 : 1u << 15;
      for (const uint32_t offset : {0u, 1u, half - 1, half, half + 1}) {
        floats.push_back(std::bit_cast<float>(exact + offset));
      }
    }
    while (floats.size() % 8 != 0) floats.push_back(0);
    const auto count = static_cast<int64_t>(floats.size());
    for_every_target([&](const std::string& target) {
      std::vector<uint16_t> halves(floats.size());
      naive_from_fp32(floats.data(), as_rows<void>(halves.data(), dtype, count), 0, 0, 0,
                      count / 8);
      for (size_t i = 0; i < floats.size(); ++i) {
        uint16_t expected = 0;
        store_element(&expected, dtype, 0, floats[i]);
        ASSERT_EQ(halves[i], expected) << target << " " << name(dtype) << " " << floats[i];
      }
    });
  }
}

}  // namespace
}  // namespace flashbench::kernels
