// The fp64 reference against the definition, and against results known without computing.
#include "verify/exact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "attention/half.h"
#include "attention_case.h"
#include "textbook.h"
#include "verify/reference.h"
#include "verify/sampling.h"

namespace flashbench::verify {

namespace {

struct Shape {
  Mask mask = Mask::none;
  int64_t q_len = 1, kv_len = 1;
  int64_t batch = 1, q_heads = 1, kv_heads = 1, head_dim = 8;
  Layout layout = Layout::bshd;
  Dtype dtype = Dtype::fp32;
  std::optional<double> scale = std::nullopt;
  std::optional<int64_t> window_left = std::nullopt, window_right = std::nullopt;
  std::optional<int64_t> head_dim_v = std::nullopt;
  std::vector<RequestLengths> lengths = {};
};

Problem problem_of(const Shape& shape, Pass pass) {
  Problem p;
  p.pass = pass;
  p.dtype = shape.dtype;
  p.mask = shape.mask;
  p.layout = shape.layout;
  p.batch = shape.batch;
  p.q_heads = shape.q_heads;
  p.kv_heads = shape.kv_heads;
  p.q_len = shape.q_len;
  p.kv_len = shape.kv_len;
  p.head_dim = shape.head_dim;
  p.scale = shape.scale;
  p.window_left = shape.window_left;
  p.window_right = shape.window_right;
  p.head_dim_v = shape.head_dim_v;
  if (!shape.lengths.empty()) p.set_lengths(std::make_shared<const Lengths>(shape.lengths));
  return p;
}

// Shorter and longer than a block, none on either side, and more queries than keys.
const std::vector<RequestLengths> kUnequal{{0, 30}, {70, 300}, {1, 1}, {40, 0}, {300, 20}, {0, 0}};

std::vector<Shape> shapes() {
  const Mask none = Mask::none, top = Mask::causal_top_left, bottom = Mask::causal_bottom_right;
  return {
      {none, 1, 1},
      {none, 1, 300, 2, 3, 3, 16, Layout::bhsd},
      {none, 300, 1, 1, 2, 1},
      {none, 130, 257, 1, 4, 2, 24, Layout::bshd, Dtype::fp16},
      {top, 70, 70, 2, 4, 1, 16, Layout::bhsd, Dtype::bf16},
      {top, 140, 20, 1, 2, 2},
      {top, 20, 300, 1, 2, 1, 8, Layout::bhsd},
      {bottom, 20, 300, 2, 2, 1, 16, Layout::bshd, Dtype::fp16},
      {bottom, 150, 20, 1, 4, 2, 8, Layout::bshd, Dtype::bf16},
      {bottom, 129, 129, 1, 2, 2, 8, Layout::bhsd, Dtype::fp32, 0.7},
      {none, 65, 129, 1, 2, 1, 8, Layout::bhsd, Dtype::fp32, -0.3},
      {none, 3, 2, 1, 1, 1, 256, Layout::bshd, Dtype::fp16, 0.0},
      {none, 130, 300, 1, 2, 1, 8, Layout::bshd, Dtype::fp32, {}, 40, 7},
      {none, 300, 130, 1, 2, 2, 8, Layout::bhsd, Dtype::fp16, {}, 0, {}},
      {none, 1, 600, 1, 2, 1, 8, Layout::bshd, Dtype::bf16, {}, 256, 0},
      {none, 150, 20, 1, 1, 1, 8, Layout::bshd, Dtype::fp32, {}, {}, 0},
      {top, 140, 90, 1, 2, 1, 8, Layout::bshd, Dtype::fp32, {}, 20, {}},
      {bottom, 140, 600, 1, 2, 1, 8, Layout::bshd, Dtype::bf16, {}, 255, 3},
      {bottom, 300, 40, 1, 1, 1, 8, Layout::bshd, Dtype::fp32, {}, 1000, {}},
      {none, 65, 129, 2, 4, 2, 24, Layout::bshd, Dtype::fp32, {}, {}, {}, 16},
      {bottom, 70, 150, 1, 4, 1, 8, Layout::bhsd, Dtype::bf16, {}, 30, {}, 40},
      {top, 130, 70, 1, 2, 2, 40, Layout::bshd, Dtype::fp16, 0.7, {}, {}, 8},
      {none, 0, 0, 0, 4, 2, 8, Layout::ragged, Dtype::fp32, {}, {}, {}, {}, kUnequal},
      {bottom, 0, 0, 0, 4, 2, 16, Layout::ragged, Dtype::bf16, {}, {}, {}, 8, kUnequal},
      {top, 0, 0, 0, 2, 2, 8, Layout::ragged, Dtype::fp16, 0.7, 40, {}, {}, kUnequal},
      {none, 0, 0, 0, 2, 1, 8, Layout::bshd, Dtype::fp32, {}, 30, 20, {}, kUnequal},
      {bottom, 0, 0, 0, 2, 1, 8, Layout::bhsd, Dtype::fp16, {}, {}, {}, {}, kUnequal},
      {bottom, 0, 0, 0, 2, 1, 8, Layout::ragged, Dtype::fp32, {}, {}, {}, {}, {{3, 0}, {1, 0}}},
  };
}

// Relative to the largest value: fp64 sums of a few hundred terms.
constexpr double kTolerance = 1e-13;

template <typename Value>
void expect_rows(const std::string& label, Array& expected, const RowBlock& block,
                 const Value& value) {
  long double largest = 0;
  for (long double element : expected.values) largest = std::max(largest, std::abs(element));
  if (!std::isfinite(largest)) largest = 1;
  for (size_t i = 0; i < block.rows.size(); ++i) {
    for (int64_t column = 0; column < expected.columns; ++column) {
      const auto want =
          static_cast<double>(expected.at(block.batch, block.head, block.rows[i], column));
      const double found = value(static_cast<int64_t>(i), column);
      if (std::isinf(want)) {
        ASSERT_EQ(found, want) << label;
      } else {
        ASSERT_NEAR(found, want, kTolerance * std::max<double>(1e-3, largest))
            << label << " row " << block.rows[i] << " column " << column;
      }
    }
  }
}

TEST(Exact, ForwardIsTheDefinition) {
  const std::unique_ptr<Device> device = make_host_device(1);
  for (const Shape& shape : shapes()) {
    const Problem p = problem_of(shape, Pass::forward);
    const AttentionCase attention(p, {}, *device);
    Textbook expected = textbook_attention(p, attention.inputs());
    for (const RowBlock& block : all_query_blocks(p)) {
      const ForwardRows rows = forward_rows(p, attention.inputs(), block);
      expect_rows(p.id() + " o", expected.o, block,
                  [&](int64_t i, int64_t column) { return rows.o.row(i)[column]; });
      expect_rows(p.id() + " logsumexp", expected.logsumexp, block,
                  [&](int64_t i, int64_t) { return rows.logsumexp[static_cast<size_t>(i)]; });
    }
  }
}

std::vector<RowStatistics> all_statistics(const Problem& p, const Inputs& inputs) {
  std::vector<RowStatistics> statistics(static_cast<size_t>(p.query_rows()));
  for (const RowBlock& block : all_query_blocks(p)) {
    const ForwardRows rows = forward_rows(p, inputs, block);
    const Rows<double> d_o = gather<double>(inputs.d_o, block);
    for (size_t i = 0; i < block.rows.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      statistics[query_index(p, block.batch, block.head, block.rows[i])] =
          row_statistics(p, rows.o.row(row), d_o.values.row(row), rows.logsumexp[i]);
    }
  }
  return statistics;
}

TEST(Exact, BackwardIsTheDefinition) {
  const std::unique_ptr<Device> device = make_host_device(1);
  for (const Shape& shape : shapes()) {
    const Problem p = problem_of(shape, Pass::backward);
    const AttentionCase attention(p, {}, *device);
    const Inputs inputs = attention.inputs();
    Textbook expected = textbook_attention(p, inputs);
    const std::vector<RowStatistics> statistics = all_statistics(p, inputs);
    const Selection all = select_rows(p, {});

    Reference dq("dq", p.dtype, p.head_dim, all.queries);
    for (size_t i = 0; i < all.queries.size(); ++i) {
      query_gradients(p, inputs, Dtype::fp32, all.queries[i], statistics, dq.values(i),
                      dq.bounds(i));
      expect_rows(p.id() + " dq", expected.dq, all.queries[i],
                  [&](int64_t row, int64_t column) { return dq.values(i).row(row)[column]; });
    }
    Reference dk("dk", p.dtype, p.head_dim, all.keys), dv("dv", p.dtype, p.value_dim(), all.keys);
    for (size_t i = 0; i < all.keys.size(); ++i) {
      key_gradients(p, inputs, Dtype::fp32, all.keys[i], statistics, dk.values(i), dk.bounds(i),
                    dv.values(i), dv.bounds(i));
      expect_rows(p.id() + " dk", expected.dk, all.keys[i],
                  [&](int64_t row, int64_t column) { return dk.values(i).row(row)[column]; });
      expect_rows(p.id() + " dv", expected.dv, all.keys[i],
                  [&](int64_t row, int64_t column) { return dv.values(i).row(row)[column]; });
    }
  }
}

TEST(Exact, ForwardPassForTheBackwardPassIsRoundedOnce) {
  const std::unique_ptr<Device> device = make_host_device(2);
  for (const Shape& shape : shapes()) {
    for (const Pass pass : kPasses) {
      const Problem p = problem_of(shape, pass);
      AttentionCase attention(p, {}, *device);
      Textbook expected = textbook_attention(p, attention.inputs());
      Oracle& oracle = attention.make_oracle({1, 1});  // has every row, even when sampled
      const Outputs outputs = attention.outputs();
      oracle.exact_forward(outputs.o, outputs.logsumexp);
      for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t h = 0; h < p.q_heads; ++h) {
          for (int64_t row = 0; row < p.q_len_of(b); ++row) {
            for (int64_t column = 0; column < p.value_dim(); ++column) {
              const float want =
                  round_to(p.dtype, static_cast<float>(expected.o.at(b, h, row, column)));
              const float found =
                  load_element(outputs.o.data, p.dtype, outputs.o.offset(b, h, row) + column);
              ASSERT_NEAR(found, want, 1e-12) << p.id();
            }
            ASSERT_FLOAT_EQ(outputs.logsumexp[query_index(p, b, h, row)],
                            static_cast<float>(expected.logsumexp.at(b, h, row, 0)))
                << p.id();
          }
        }
      }
    }
  }
}

// All scores are 0, so that P is 1/64 and the scores have no error: the bounds are short sums.
TEST(Bounds, AreTheFormulaWhereAllKeysWeighTheSame) {
  const std::unique_ptr<Device> device = make_host_device(1);
  for (const auto& [dtype, u, floor] : {std::tuple{Dtype::fp32, 0x1p-22, 0x1p-126},
                                        {Dtype::fp16, 0x1p-11, 0x1p-25},
                                        {Dtype::bf16, 0x1p-8, 0x1p-126}}) {
    Problem p = problem_of({Mask::none, 64, 64, 1, 1, 1, 8, Layout::bshd, dtype}, Pass::backward);
    p.scale = 0;
    const AttentionCase attention(p, {}, *device);
    const Inputs inputs = attention.inputs();
    const RowBlock block = all_query_blocks(p).front();
    const ForwardRows forward = forward_rows(p, inputs, block);
    const Rows<double> v = gather<double>(inputs.v, block), d_o = gather<double>(inputs.d_o, block);
    const std::vector<RowBlock> blocks{block};
    Reference o("o", dtype, 8, blocks), dk("dk", dtype, 8, blocks), dv("dv", dtype, 8, blocks);
    Matrix<float> logsumexp(64, 1);
    forward_bounds(p, inputs, Dtype::fp32, block, forward, o.bound.ref(), logsumexp.ref());
    key_gradients(p, inputs, Dtype::fp32, block, all_statistics(p, inputs), dk.value.ref(),
                  dk.bound.ref(), dv.value.ref(), dv.bound.ref());

    const double summation = 8 * 0x1p-24, common = 0x1p-23 * std::log(64.0);  // sqrt(64) = 8
    EXPECT_FLOAT_EQ(*logsumexp.row(5),
                    static_cast<float>(0x1p-22 + summation + 0x1p-23 * std::log(64.0)));
    double v_squares = 0, d_o_squares = 0;
    for (int64_t i = 0; i < 64; ++i) {
      v_squares += v.values.row(i)[3] * v.values.row(i)[3];
      d_o_squares += d_o.values.row(i)[3] * d_o.values.row(i)[3];
    }
    const double p_variance = (u * u + summation * summation) / 4096 + floor * floor;
    EXPECT_FLOAT_EQ(o.bound.row(5)[3],
                    static_cast<float>(std::sqrt(p_variance * v_squares) +
                                       summation * std::abs(forward.o.row(5)[3])));
    EXPECT_FLOAT_EQ(
        dv.bound.row(5)[3],
        static_cast<float>(std::sqrt((p_variance + common * common / 4096) * d_o_squares) +
                           summation * std::abs(dv.value.row(5)[3])));
  }
}

// With one query and one key the bounds are short enough to write down: a score is a sum over
// head_dim, dP and D are sums over head_dim_v.
TEST(Bounds, AreTheFormulaWithTheHeadDimOfEachSum) {
  const std::unique_ptr<Device> device = make_host_device(1);
  const auto square = [](double x) { return x * x; };
  const auto norm_squared = [&](const Rows<double>& rows) {
    double sum = 0;
    for (int64_t i = 0; i < rows.values.cols(); ++i) sum += square(rows.values.row(0)[i]);
    return sum;
  };
  for (const auto& [head_dim, head_dim_v] : {std::pair<int64_t, int64_t>{8, 256}, {256, 8}}) {
    Shape shape{.head_dim = head_dim};
    shape.head_dim_v = head_dim_v;
    const Problem p = problem_of(shape, Pass::backward);
    const AttentionCase attention(p, {}, *device);
    const Inputs inputs = attention.inputs();
    const RowBlock block = all_query_blocks(p).front();
    const ForwardRows forward = forward_rows(p, inputs, block);
    const std::vector<RowBlock> blocks{block};
    Reference o("o", p.dtype, head_dim_v, blocks), dq("dq", p.dtype, head_dim, blocks);
    Matrix<float> logsumexp(1, 1);
    forward_bounds(p, inputs, Dtype::fp32, block, forward, o.bound.ref(), logsumexp.ref());
    query_gradients(p, inputs, Dtype::fp32, block, all_statistics(p, inputs), dq.value.ref(),
                    dq.bound.ref());

    const auto q = gather<double>(inputs.q, block), k = gather<double>(inputs.k, block);
    const auto v = gather<double>(inputs.v, block), d_o = gather<double>(inputs.d_o, block);
    const double u = 0x1p-24, scale = p.softmax_scale();
    const double d = static_cast<double>(head_dim), d_v = static_cast<double>(head_dim_v);
    const double score = d * square(u * scale) * norm_squared(q) * norm_squared(k);
    const double v_element = v.values.row(0)[3], k_element = k.values.row(0)[3];
    EXPECT_FLOAT_EQ(
        o.bound.row(0)[3],
        static_cast<float>(std::sqrt(square(v_element) * (square(4 * u) + square(u) + 2 * score)) +
                           u * std::abs(v_element)));
    double products = 0;  // squared, of dO and O
    for (int64_t i = 0; i < head_dim_v; ++i) {
      products += square(d_o.values.row(0)[i] * v.values.row(0)[i]);
    }
    const double d_p = d_v * square(u) * norm_squared(d_o) * norm_squared(v);
    EXPECT_NEAR(dq.bound.row(0)[3],
                scale * std::abs(k_element) *
                    (std::sqrt(d_p) + std::sqrt((1 + d_v) * square(u) * products)),
                1e-5 * dq.bound.row(0)[3]);
  }
}

// Keys in pages are the same keys: the reference and its bounds are, bit for bit.
TEST(Exact, PagesChangeNothing) {
  const std::unique_ptr<Device> device = make_host_device(1);
  for (const Mask mask : kMasks) {
    Problem contiguous{.mask = mask, .q_heads = 4, .kv_heads = 2, .head_dim = 8};
    contiguous.set_lengths(std::make_shared<const Lengths>(
        std::vector<RequestLengths>{{5, 40}, {9, 3}, {1, 300}, {2, 0}}));
    Problem paged = contiguous;
    paged.page_size = 16;
    const AttentionCase one(contiguous, {}, *device), other(paged, {}, *device);
    for (const RowBlock& block : all_query_blocks(contiguous)) {
      const ForwardRows expected = forward_rows(contiguous, one.inputs(), block);
      const ForwardRows found = forward_rows(paged, other.inputs(), block);
      const auto rows = static_cast<int64_t>(block.rows.size());
      Matrix<float> o_bounds[2]{{rows, 8}, {rows, 8}}, l_bounds[2]{{rows, 1}, {rows, 1}};
      forward_bounds(contiguous, one.inputs(), Dtype::fp32, block, expected, o_bounds[0].ref(),
                     l_bounds[0].ref());
      forward_bounds(paged, other.inputs(), Dtype::fp32, block, found, o_bounds[1].ref(),
                     l_bounds[1].ref());
      EXPECT_EQ(found.logsumexp, expected.logsumexp);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t c = 0; c < 8; ++c) {
          EXPECT_EQ(found.o.row(i)[c], expected.o.row(i)[c]);
          EXPECT_EQ(o_bounds[1].row(i)[c], o_bounds[0].row(i)[c]);
        }
      }
    }
  }
}

TEST(Exact, LargeScoresDoNotOverflow) {
  const std::unique_ptr<Device> device = make_host_device(1);
  Problem p = problem_of({Mask::none, 9, 40}, Pass::forward);
  p.scale = 1e4;
  const AttentionCase attention(p, {}, *device);
  const RowBlock block = all_query_blocks(p).front();
  const ForwardRows rows = forward_rows(p, attention.inputs(), block);
  for (size_t i = 0; i < block.rows.size(); ++i) {
    EXPECT_GT(std::abs(rows.logsumexp[i]), 1e3);
    double sum = 0;
    for (int64_t j = 0; j < p.kv_len; ++j) sum += rows.p.row(static_cast<int64_t>(i))[j];
    EXPECT_NEAR(sum, 1, 1e-14);
  }
}

}  // namespace

}  // namespace flashbench::verify
