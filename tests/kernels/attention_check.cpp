#include "tests/kernels/attention_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "attention/half.h"
#include "inputs/padding.h"
#include "inputs/random_value.h"

namespace flashbench {

namespace {

Bytes random_tensor(const Problem& p, int64_t elements, uint64_t seed, int tensor) {
  Bytes bytes(static_cast<size_t>(elements * element_size(p.dtype)));
  for (int64_t i = 0; i < elements; ++i) {
    store_element(bytes.data(), p.dtype, i,
                  random_value(Distribution::normal, seed, tensor, static_cast<uint64_t>(i)));
  }
  return bytes;
}

double unit_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return 0x1p-24;
    case Dtype::fp16:
      return 0x1p-11;
    case Dtype::bf16:
      return 0x1p-8;
    case Dtype::e4m3:
      return 0x1p-4;
  }
  return 0;
}

// Half the distance between the format's smallest numbers.
double smallest_rounding(Dtype dtype) {
  return dtype == Dtype::fp16 ? 0x1p-25 : 0x1p-149;
}

void expect_tensor(const char* name, const Expected& expected, const ConstTensorView& actual) {
  double worst = -1;
  std::string report;
  for (int64_t b = 0, i = 0; b < actual.batch; ++b) {
    for (int64_t h = 0; h < actual.heads; ++h) {
      for (int64_t row = 0; row < actual.length; ++row) {
        for (int64_t c = 0; c < actual.head_dim; ++c, ++i) {
          const double value =
              load_element(actual.data, actual.dtype, actual.offset(b, h, row) + c);
          const double wanted = expected.value[static_cast<size_t>(i)];
          if (value == wanted) continue;  // infinities too
          const double bound = expected.error[static_cast<size_t>(i)] +
                               unit_roundoff(actual.dtype) *
                                   (std::abs(wanted) + expected.error[static_cast<size_t>(i)]) +
                               smallest_rounding(actual.dtype);
          const double ratio = std::abs(value - wanted) / bound;
          if (ratio <= 1 || ratio <= worst) continue;
          worst = std::isnan(ratio) ? INFINITY : ratio;
          std::ostringstream text;
          text << name << "[" << b << ", " << h << ", " << row << ", " << c << "] is " << value
               << ", not " << wanted << ": " << worst << " times the bound";
          report = text.str();
        }
      }
    }
  }
  EXPECT_TRUE(report.empty()) << report;
}

}  // namespace

namespace {

// The rows of request b of a tensor, as the only ones of another.
void copy_request(const ConstTensorView& from, int64_t b, const TensorView& to) {
  for (int64_t h = 0; h < to.heads; ++h) {
    for (int64_t row = 0; row < to.length; ++row) {
      for (int64_t c = 0; c < to.head_dim; ++c) {
        store_element(to.data, to.dtype, to.offset(0, h, row) + c,
                      load_element(from.data, from.dtype, from.offset(b, h, row) + c));
      }
    }
  }
}

}  // namespace

Bytes poisoned(int64_t bytes) {
  return Bytes(static_cast<size_t>(bytes), std::byte{0xff});
}

RandomInputs::RandomInputs(const Problem& p, uint64_t seed)
    : problem_(p),
      q_(random_tensor(p, p.query_elements(), seed, 0)),
      k_(random_tensor(p, p.key_elements(), seed, 1)),
      v_(random_tensor(p, p.value_elements(), seed, 2)) {
  if (p.pass == Pass::backward) {
    d_o_ = random_tensor(p, p.output_elements(), seed, 3);
    o_ = poisoned(static_cast<int64_t>(d_o_.size()));
  }
  if (p.is_padded()) {
    poison_padding(query_view<void>(q_.data(), p), p.lengths->queries());
    poison_padding(key_view<void>(k_.data(), p), p.lengths->keys());
    poison_padding(value_view<void>(v_.data(), p), p.lengths->keys());
    if (p.pass == Pass::backward) {
      poison_padding(output_view<void>(d_o_.data(), p), p.lengths->queries());
    }
  }
  if (p.pass == Pass::backward) compute_forward();
}

RandomInputs RandomInputs::request(int64_t b) const {
  RandomInputs one(problem_.request(b));
  const Inputs from = view();
  copy_request(from.q, b, query_view<void>(one.q_.data(), one.problem_));
  copy_request(from.k, b, key_view<void>(one.k_.data(), one.problem_));
  copy_request(from.v, b, value_view<void>(one.v_.data(), one.problem_));
  if (problem_.pass == Pass::backward) {
    copy_request(from.d_o, b, output_view<void>(one.d_o_.data(), one.problem_));
    one.compute_forward();
  }
  return one;
}

void RandomInputs::compute_forward_of_requests() {
  logsumexp_ = poisoned(problem_.query_rows() * static_cast<int64_t>(sizeof(float)));
  const TensorView o = output_view<void>(o_.data(), problem_);
  for (int64_t b = 0; b < problem_.batch; ++b) {
    const RandomInputs one = request(b);
    const Inputs in = one.view();
    for (int64_t h = 0; h < problem_.q_heads; ++h) {
      for (int64_t row = 0; row < one.problem_.q_len; ++row) {
        for (int64_t c = 0; c < o.head_dim; ++c) {
          store_element(o.data, o.dtype, o.offset(b, h, row) + c,
                        load_element(in.o.data, in.o.dtype, in.o.offset(0, h, row) + c));
        }
        logsumexp()[problem_.query_index(b, h, row)] =
            in.logsumexp[one.problem_.query_index(0, h, row)];
      }
    }
  }
}

void RandomInputs::compute_forward() {
  if (problem_.lengths) return compute_forward_of_requests();
  const Problem& p = problem_;
  const ExpectedForward forward = reference_forward(p, view());
  const TensorView o = output_view<void>(o_.data(), p);
  for (int64_t b = 0, i = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      for (int64_t row = 0; row < p.q_len; ++row) {
        for (int64_t c = 0; c < o.head_dim; ++c, ++i) {
          store_element(o_.data(), p.dtype, o.offset(b, h, row) + c,
                        static_cast<float>(forward.o.value[static_cast<size_t>(i)]));
        }
      }
    }
  }
  logsumexp_ = poisoned(p.query_rows() * static_cast<int64_t>(sizeof(float)));
  std::transform(forward.logsumexp.value.begin(), forward.logsumexp.value.end(), logsumexp(),
                 [](double value) { return static_cast<float>(value); });
}

Inputs RandomInputs::view() const {
  Inputs in;
  in.q = query_view<const void>(q_.data(), problem_);
  in.k = key_view<const void>(k_.data(), problem_);
  in.v = value_view<const void>(v_.data(), problem_);
  if (problem_.pass == Pass::backward) {
    in.o = output_view<const void>(o_.data(), problem_);
    in.d_o = output_view<const void>(d_o_.data(), problem_);
    in.logsumexp = reinterpret_cast<const float*>(logsumexp_.data());
  }
  return in;
}

void RandomInputs::fill(int tensor,
                        const std::function<float(int64_t, int64_t, int64_t, int64_t)>& value) {
  Bytes& bytes = tensor == 0 ? q_ : tensor == 1 ? k_ : v_;
  const TensorView t = tensor == 0   ? query_view<void>(bytes.data(), problem_)
                       : tensor == 1 ? key_view<void>(bytes.data(), problem_)
                                     : value_view<void>(bytes.data(), problem_);
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t row = 0; row < t.rows(b); ++row) {
        for (int64_t c = 0; c < t.head_dim; ++c) {
          store_element(t.data, t.dtype, t.offset(b, h, row) + c, value(b, h, row, c));
        }
      }
    }
  }
  if (problem_.pass == Pass::backward) compute_forward();
}

PagedInputs::PagedInputs(const RandomInputs& contiguous, int64_t page_size, KvLayout layout,
                         const BlockTable& table)
    : problem_(contiguous.problem()), contiguous_(contiguous.view()) {
  problem_.page_size = page_size;
  problem_.kv_layout = layout;
  problem_.block_table = std::make_shared<const BlockTable>(table);
  k_ = in_pages(contiguous_.k);
  v_ = in_pages(contiguous_.v);
}

Bytes PagedInputs::in_pages(const ConstTensorView& from) const {
  const BlockTable& table = *problem_.block_table;
  const int64_t page_size = *problem_.page_size, columns = from.head_dim;
  Bytes pool =
      poisoned(table.pages() * page_size * from.heads * columns * element_size(from.dtype));
  for (int64_t b = 0; b < from.batch; ++b) {
    for (int64_t row = 0; row < problem_.kv_len_of(b); ++row) {
      const int64_t page = table.at(b, row / page_size), place = row % page_size;
      for (int64_t h = 0; h < from.heads; ++h) {
        const int64_t at = problem_.kv_layout == KvLayout::paged_nhd
                               ? ((page * page_size + place) * from.heads + h) * columns
                               : ((page * from.heads + h) * page_size + place) * columns;
        for (int64_t c = 0; c < columns; ++c) {
          store_element(pool.data(), from.dtype, at + c,
                        load_element(from.data, from.dtype, from.offset(b, h, row) + c));
        }
      }
    }
  }
  return pool;
}

Inputs PagedInputs::view() const {
  const BlockTable& table = *problem_.block_table;
  Inputs in = contiguous_;
  in.k =
      paged_view(key_view<const void>(k_.data(), problem_), problem_, table.data(), table.width());
  in.v = paged_view(value_view<const void>(v_.data(), problem_), problem_, table.data(),
                    table.width());
  return in;
}

BlockTable random_table(const Problem& p, int64_t page_size, int64_t unused, uint64_t seed) {
  const auto pages_of = [&](int64_t b) { return (p.kv_len_of(b) + page_size - 1) / page_size; };
  int64_t used = 0;
  for (int64_t b = 0; b < p.batch; ++b) used += pages_of(b);
  std::vector<int32_t> pages(static_cast<size_t>(used + unused));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(seed));
  BlockTable table(p.batch, (p.kv_len + page_size - 1) / page_size + 1, used + unused);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < pages_of(b); ++i) {
      table.at(b, i) = pages.back();
      pages.pop_back();
    }
  }
  return table;
}

CheckedOutputs::CheckedOutputs(const Problem& p) : problem_(p) {
  const int64_t element = element_size(p.dtype);
  if (p.pass == Pass::forward) {
    o_ = poisoned(p.output_elements() * element);
    logsumexp_ = poisoned(p.query_rows() * static_cast<int64_t>(sizeof(float)));
  } else {
    dq_ = poisoned(p.query_elements() * element);
    dk_ = poisoned(p.key_elements() * element);
    dv_ = poisoned(p.value_elements() * element);
  }
}

Outputs CheckedOutputs::view() {
  Outputs out;
  if (problem_.pass == Pass::forward) {
    out.o = output_view<void>(o_.data(), problem_);
    out.logsumexp = reinterpret_cast<float*>(logsumexp_.data());
  } else {
    out.dq = query_view<void>(dq_.data(), problem_);
    out.dk = key_view<void>(dk_.data(), problem_);
    out.dv = value_view<void>(dv_.data(), problem_);
  }
  return out;
}

CheckedOutputs CheckedOutputs::request(int64_t b) {
  const Problem p = problem_.request(b);
  CheckedOutputs one(p);
  const Outputs from = view(), to = one.view();
  if (p.pass == Pass::forward) {
    copy_request(from.o, b, to.o);
    copy_request(logsumexp_view<const void>(from.logsumexp, problem_), b,
                 logsumexp_view<void>(to.logsumexp, p));
  } else {
    copy_request(from.dq, b, to.dq);
    copy_request(from.dk, b, to.dk);
    copy_request(from.dv, b, to.dv);
  }
  return one;
}

float CheckedOutputs::o(int64_t b, int64_t h, int64_t row, int64_t column) const {
  const auto view = output_view<const void>(o_.data(), problem_);
  return load_element(view.data, view.dtype, view.offset(b, h, row) + column);
}

float CheckedOutputs::logsumexp(int64_t b, int64_t h, int64_t row) const {
  return load_element(logsumexp_.data(), Dtype::fp32, problem_.query_index(b, h, row));
}

Expectation::Expectation(const RandomInputs& inputs) {
  if (inputs.problem().pass == Pass::forward) {
    forward = reference_forward(inputs.problem(), inputs.view());
  } else {
    backward = reference_backward(inputs.problem(), inputs.view());
  }
}

void expect_correct(const Problem& p, const Expectation& expected, const Outputs& out) {
  if (p.pass == Pass::forward) {
    expect_tensor("o", expected.forward.o, out.o);
    expect_tensor("logsumexp", expected.forward.logsumexp,
                  logsumexp_view<const void>(out.logsumexp, p));
  } else {
    expect_tensor("dq", expected.backward.dq, out.dq);
    expect_tensor("dk", expected.backward.dk, out.dk);
    expect_tensor("dv", expected.backward.dv, out.dv);
  }
}

void expect_requests_correct(const RandomInputs& inputs, CheckedOutputs& outputs) {
  for (int64_t b = 0; b < inputs.problem().batch; ++b) {
    SCOPED_TRACE("request " + std::to_string(b));
    const RandomInputs one = inputs.request(b);
    expect_correct(one.problem(), Expectation(one), outputs.request(b).view());
  }
}

std::vector<Problem> problems_of_lengths(Pass pass, Mask mask, int64_t head_dim) {
  // None on either side, one, around a tile's edge and several tiles; and the same lengths behind
  // each other, where a mistaken request would go unnoticed by its lengths.
  const std::vector<std::vector<RequestLengths>> kBatches{
      {{0, 40}, {33, 65}, {0, 0}, {1, 130}, {70, 0}, {150, 33}, {3, 0}},
      {{1, 1}, {64, 64}, {64, 64}, {1, 300}, {200, 200}},
      {{5, 0}, {1, 0}},
      {{130, 257}}};
  std::vector<Problem> problems;
  for (const std::vector<RequestLengths>& requests : kBatches) {
    for (const Layout layout : kLayouts) {
      Problem p;
      p.pass = pass;
      p.mask = mask;
      p.layout = layout;
      p.dtype = kUnscaledDtypes[problems.size() % kUnscaledDtypes.size()];
      p.kv_heads = 1 + static_cast<int64_t>(problems.size() % 2);
      p.q_heads = 2 * p.kv_heads;
      p.head_dim = head_dim;
      if (problems.size() % 3 == 1) p.window_left = 40;
      if (problems.size() % 4 == 1) p.window_right = 5;
      if (problems.size() % 5 == 2) p.head_dim_v = 40;
      p.set_lengths(std::make_shared<const Lengths>(requests));
      problems.push_back(p);
    }
  }
  return problems;
}

std::vector<Problem> varied_problems(Pass pass, Mask mask, int64_t head_dim,
                                     std::optional<int64_t> head_dim_v) {
  struct Heads {
    int64_t batch, q_heads, kv_heads;
  };
  // One more and one less than a step of the tiles, and enough for several tiles. Keys are longer
  // and shorter than queries, so that causal masks hide whole rows, whole tiles and parts of tiles.
  constexpr std::array<RequestLengths, 7> kLengths{
      {{1, 1}, {1, 33}, {31, 65}, {33, 31}, {65, 257}, {257, 33}, {97, 96}}};
  constexpr std::array<Heads, 3> kHeads{{{2, 1, 1}, {1, 4, 2}, {1, 3, 1}}};

  std::vector<Problem> problems;
  size_t turn = static_cast<size_t>(head_dim / kHeadDimStep);
  for (const RequestLengths& lengths : kLengths) {
    for (const Dtype dtype : kUnscaledDtypes) {
      const Heads& heads = kHeads[turn % kHeads.size()];
      Problem p;
      p.pass = pass;
      p.dtype = dtype;
      p.mask = mask;
      p.layout = kDenseLayouts[turn / kHeads.size() % kDenseLayouts.size()];
      p.batch = heads.batch;
      p.q_heads = heads.q_heads;
      p.kv_heads = heads.kv_heads;
      p.q_len = lengths.q_len;
      p.kv_len = lengths.kv_len;
      p.head_dim = head_dim;
      p.head_dim_v = head_dim_v;
      if (turn % 5 == 0) p.scale = 0.3;
      problems.push_back(p);
      ++turn;
    }
    ++turn;
  }
  return problems;
}

std::vector<Problem> windowed_problems(Pass pass, Mask mask, int64_t head_dim) {
  using Window = std::optional<int64_t>;
  std::vector<Problem> problems;
  for (const auto& [q_len, kv_len] :
       {std::pair<int64_t, int64_t>{150, 150}, {40, 200}, {170, 70}}) {
    for (const auto& [left, right] : {std::pair<Window, Window>{0, {}},
                                      {1, {}},
                                      {31, 0},
                                      {33, 64},
                                      {64, 1},
                                      {0, 0},
                                      {{}, 0},
                                      {{}, 33},
                                      {1000, 31},
                                      {127, 1000}}) {
      Problem p;
      p.pass = pass;
      p.dtype = kUnscaledDtypes[problems.size() % kUnscaledDtypes.size()];
      p.mask = mask;
      p.layout = kDenseLayouts[problems.size() % kDenseLayouts.size()];
      p.q_heads = 2;
      p.kv_heads = 1 + static_cast<int64_t>(problems.size() / 2 % 2);
      p.q_len = q_len;
      p.kv_len = kv_len;
      p.head_dim = head_dim;
      p.window_left = left;
      p.window_right = right;
      problems.push_back(p);
    }
  }
  return problems;
}

}  // namespace flashbench
