#include "inputs/rounded_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "attention/half.h"
#include "inputs/hadamard.h"
#include "inputs/inputs.h"

namespace flashbench {
namespace {

Problem with_recipe(Quantize quantize, int64_t head_dim) {
  return {.dtype = Dtype::bf16,
          .batch = 2,
          .q_heads = 4,
          .kv_heads = 2,
          .q_len = 70,
          .kv_len = 200,
          .head_dim = head_dim,
          .quantize = quantize};
}

TEST(Hadamard, KeepsDotProductsButForTheSize) {
  for (const int64_t size : {8, 24, 48, 64, 96, 128, 192, 256}) {
    std::vector<std::vector<float>> rows;
    for (int64_t i = 0; i < size; ++i) {  // of the identity: the columns of the matrix
      rows.emplace_back(static_cast<size_t>(size), 0.0f)[static_cast<size_t>(i)] = 1;
      rotate(rows.back());
      for (const float element : rows.back()) ASSERT_EQ(std::abs(element), 1) << size;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t j = 0; j < rows.size(); ++j) {
        float dot = 0;
        for (size_t c = 0; c < rows.size(); ++c) dot += rows[i][c] * rows[j][c];
        ASSERT_EQ(dot, i == j ? static_cast<float>(size) : 0) << size;
      }
    }
  }
  int negative = 0;
  for (int64_t c = 0; c < 256; ++c) negative += hadamard_sign(c) < 0 ? 1 : 0;
  EXPECT_GT(negative, 96);
  EXPECT_LT(negative, 160);
}

// The recipe of K in fp64, from the definition.
class Expected {
 public:
  Expected(const Problem& p, const ConstTensorView& k) : p_(p), k_(k) {}

  std::vector<double> row(int64_t b, int64_t h, int64_t row) const {
    const Recipe recipe = recipe_of(p_.quantize);
    std::vector<double> values;
    for (int64_t c = 0; c < p_.head_dim; ++c) {
      values.push_back(at(b, h, row, c) - (recipe.smooth_k ? mean(b, h, c) : 0));
    }
    if (!recipe.hadamard) return values;
    std::vector<double> rotated(values.size(), 0);
    for (size_t c = 0; c < values.size(); ++c) {
      std::vector<float> column(values.size(), 0.0f);  // of the matrix, with the sign
      column[c] = 1;
      rotate(column);
      for (size_t i = 0; i < values.size(); ++i) {
        rotated[i] += static_cast<double>(column[i]) * values[c];
      }
    }
    return rotated;
  }

 private:
  double at(int64_t b, int64_t h, int64_t row, int64_t c) const {
    return static_cast<double>(load_element(k_.data, k_.dtype, k_.offset(b, h, row) + c));
  }
  double mean(int64_t b, int64_t h, int64_t c) const {
    double sum = 0;
    for (int64_t row = 0; row < k_.length; ++row) sum += at(b, h, row, c);
    return sum / static_cast<double>(k_.length);
  }

  const Problem& p_;
  ConstTensorView k_;
};

// Of each recipe: the factors of K to 2 ulps, and each byte within half a step plus 2^-20.
TEST(RoundedInputs, AreTheRecipesToHalfAStep) {
  ThreadPool pool(2);
  for (const Quantize quantize : kQuantizes) {
    if (quantize == Quantize::none) continue;
    const Problem p = with_recipe(quantize, 24);
    const HostTensors host(p, {.distribution = Distribution::channel_offsets}, pool);
    std::vector<std::byte> memory(RoundedInputs::memory_bytes(p));
    RoundedInputs rounded(p, memory.data());
    rounded.round(host.inputs(), pool);
    const Expected expected(p, host.inputs().k);
    const ByteFormat format = rounded.qk_format();
    const double most = static_cast<double>(most_of(format));
    for (int64_t first = 0; first < p.kv_len; first += kDescaleRows) {
      if (rounded.k().descales.block_stride == 0 && first > 0) break;
      const bool blocks = rounded.k().descales.block_stride != 0;
      const int64_t end = blocks ? std::min(first + kDescaleRows, p.kv_len) : p.kv_len;
      const bool all = rounded.k().descales.head_stride == 0;
      double amax = 0;
      for (int64_t b = all ? 0 : 1; b < (all ? p.batch : 2); ++b) {
        for (int64_t h = all ? 0 : 1; h < p.kv_heads; ++h) {
          for (int64_t row = first; row < end; ++row) {
            for (const double value : expected.row(b, h, row)) {
              amax = std::max(amax, std::abs(value));
            }
          }
        }
      }
      const double factor = static_cast<double>(rounded.k().descales.at(1, 1, first));
      EXPECT_NEAR(factor, amax / most, factor * 0x1p-22) << name(quantize);
      for (int64_t row = first; row < end; ++row) {
        const std::vector<double> values = expected.row(1, 1, row);
        for (size_t c = 0; c < values.size(); ++c) {
          const uint8_t byte = static_cast<const uint8_t*>(
              rounded.k().data)[rounded.k().offset(1, 1, row) + static_cast<int64_t>(c)];
          const double scaled = values[c] / factor;
          const double half_step = format == ByteFormat::int8
                                       ? 0.5
                                       : std::max(0x1p-10, std::ldexp(1, std::ilogb(scaled) - 4));
          ASSERT_LE(std::abs(static_cast<double>(decode(format, byte)) - scaled),
                    half_step + 0x1p-20 * most)
              << name(quantize) << " row " << row << " column " << c;
        }
      }
    }
  }
}

TEST(RoundedInputs, TheMeanOfKGoesBackIntoTheLogsumexp) {
  ThreadPool pool(1);
  const Problem p = with_recipe(Quantize::e4m3_block_smooth_k, 32);
  const HostTensors host(p, {.distribution = Distribution::channel_offsets}, pool);
  const Inputs in = host.inputs();
  std::vector<std::byte> memory(RoundedInputs::memory_bytes(p));
  RoundedInputs rounded(p, memory.data());
  rounded.round(in, pool);
  double sum = 0;  // of the dot products of a row of Q with all keys of its K/V head
  for (int64_t key = 0; key < p.kv_len; ++key) {
    for (int64_t c = 0; c < p.head_dim; ++c) {
      sum += static_cast<double>(load_element(in.q.data, in.q.dtype, in.q.offset(1, 3, 5) + c)) *
             static_cast<double>(load_element(in.k.data, in.k.dtype, in.k.offset(1, 1, key) + c));
    }
  }
  const double expected = p.softmax_scale() * sum / static_cast<double>(p.kv_len);
  EXPECT_NEAR(rounded.logsumexp_shift(in.q, 1, 3, 5), expected, 1e-5 * std::abs(expected));
}

TEST(RoundedInputs, Int8RoundsHalfwayValuesToEvenAndTakesNoNan) {
  ThreadPool pool(1);
  const Problem p{.dtype = Dtype::e4m3, .q_heads = 2, .kv_heads = 2, .head_dim = 8};
  std::vector<uint8_t> bytes(16);
  std::vector<float> descales(2);
  TensorView to = query_view<void>(bytes.data(), p);
  to.descales = query_descales_view(descales.data(), p);
  quantize(
      [](int64_t, int64_t h, int64_t, float* row) {
        const float values[8] = {127, -127, 0.5f, 1.5f, -2.5f, 126.5f, 0, 1};
        std::copy_n(values, 8, row);
        if (h == 1) row[2] = std::numeric_limits<float>::quiet_NaN();
      },
      ByteFormat::int8, to, descales.data(), pool);
  EXPECT_EQ(descales[0], 1);
  const float expected[8] = {127, -127, 0, 2, -2, 126, 0, 1};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(decode(ByteFormat::int8, bytes[i]), expected[i]) << i;
  EXPECT_TRUE(std::isnan(descales[1]));
}

}  // namespace
}  // namespace flashbench
