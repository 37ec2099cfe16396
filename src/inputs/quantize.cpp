#include "inputs/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/e4m3.h"

namespace flashbench {

namespace {

// kDescaleRows rows of a head, or fewer at its end.
struct Block {
  int64_t b, h, first, end;
};

// Calls body(number, block) for all blocks of the tensor, in parallel.
template <typename Body>
void for_blocks(const ConstTensorView& t, ThreadPool& pool, const Body& body) {
  const int64_t of_head = (t.length + kDescaleRows - 1) / kDescaleRows;
  pool.parallel_for(t.batch * t.heads * of_head, [&](int64_t item, int) {
    const int64_t head = item / of_head, first = item % of_head * kDescaleRows;
    body(item,
         Block{head / t.heads, head % t.heads, first, std::min(first + kDescaleRows, t.length)});
  });
}

size_t index_of(const Descales& descales, const Block& block) {
  return static_cast<size_t>(block.b * descales.batch_stride + block.h * descales.head_stride +
                             block.first / kDescaleRows * descales.block_stride);
}

float largest_magnitude(ByteFormat format, const std::vector<float>& row) {
  float largest = 0;
  for (const float value : row) {
    if (format == ByteFormat::int8 && std::isnan(value)) {
      return std::numeric_limits<float>::infinity();  // so that the factor is NaN
    }
    largest = std::max(largest, std::abs(value));  // not of a NaN
  }
  return largest;
}

uint8_t encode(ByteFormat format, float value) {
  if (format == ByteFormat::e4m3) return float_to_e4m3(value);
  if (std::isnan(value)) return 0;
  const float most = most_of(format);
  return static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(std::clamp(value, -most, most))));
}

}  // namespace

float decode(ByteFormat format, uint8_t byte) {
  return format == ByteFormat::e4m3 ? e4m3_to_float(byte)
                                    : static_cast<float>(static_cast<int8_t>(byte));
}

float most_of(ByteFormat format) {
  return format == ByteFormat::e4m3 ? kMostE4m3 : 127;
}

float descale_of(float amax, float most) {
  if (amax == 0) return 1;
  if (std::isinf(amax)) return std::numeric_limits<float>::quiet_NaN();
  return std::max(amax / most, std::numeric_limits<float>::min());
}

float exact_descale_of(float amax, float most) {
  const float least = descale_of(amax, most);
  if (std::isnan(least)) return least;
  int exponent = 0;
  const float fraction = std::frexp(least, &exponent);  // [0.5, 1)
  return std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

void quantize(const RowSource& rows, ByteFormat format, const TensorView& to, float* descales,
              ThreadPool& pool, const DescaleRule& rule) {
  const int64_t of_head = (to.length + kDescaleRows - 1) / kDescaleRows;
  std::vector<float> amax(static_cast<size_t>(to.batch * to.heads * of_head));
  for_blocks(to, pool, [&](int64_t number, const Block& block) {
    std::vector<float> row(static_cast<size_t>(to.head_dim));
    float& largest = amax[static_cast<size_t>(number)];
    for (int64_t i = block.first; i < block.end; ++i) {
      rows(block.b, block.h, i, row.data());
      largest = std::max(largest, largest_magnitude(format, row));
    }
  });

  std::vector<float> of_factor;
  for (size_t number = 0; number < amax.size(); ++number) {
    const auto item = static_cast<int64_t>(number);
    const int64_t head = item / of_head;
    const size_t factor =
        index_of(to.descales, {head / to.heads, head % to.heads, item % of_head * kDescaleRows, 0});
    if (factor >= of_factor.size()) of_factor.resize(factor + 1, 0);
    of_factor[factor] = std::max(of_factor[factor], amax[number]);
  }
  for (size_t factor = 0; factor < of_factor.size(); ++factor) {
    descales[factor] = rule(of_factor[factor], most_of(format));
  }

  for_blocks(to, pool, [&](int64_t, const Block& block) {
    std::vector<float> row(static_cast<size_t>(to.head_dim));
    const float factor = descales[index_of(to.descales, block)];
    for (int64_t i = block.first; i < block.end; ++i) {
      rows(block.b, block.h, i, row.data());
      uint8_t* bytes = static_cast<uint8_t*>(to.data) + to.offset(block.b, block.h, i);
      for (const float value : row) *bytes++ = encode(format, value / factor);
    }
  });
}

}  // namespace flashbench
