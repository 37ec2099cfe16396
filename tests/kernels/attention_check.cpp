#include "tests/kernels/attention_check.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "attention/half.h"
#include "device/inputs.h"

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

Bytes poisoned(int64_t bytes) {
  return Bytes(static_cast<size_t>(bytes), std::byte{0xff});
}

RandomInputs::RandomInputs(const Problem& p, uint64_t seed)
    : problem_(p),
      q_(random_tensor(p, p.query_elements(), seed, 0)),
      k_(random_tensor(p, p.key_elements(), seed, 1)),
      v_(random_tensor(p, p.value_elements(), seed, 2)) {
  if (p.pass == Pass::forward) return;
  d_o_ = random_tensor(p, p.output_elements(), seed, 3);
  o_.resize(d_o_.size());
  compute_forward();
}

void RandomInputs::compute_forward() {
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
  logsumexp_.assign(forward.logsumexp.value.begin(), forward.logsumexp.value.end());
}

Inputs RandomInputs::view() const {
  Inputs in;
  in.q = query_view<const void>(q_.data(), problem_);
  in.k = key_view<const void>(k_.data(), problem_);
  in.v = value_view<const void>(v_.data(), problem_);
  if (problem_.pass == Pass::backward) {
    in.o = output_view<const void>(o_.data(), problem_);
    in.d_o = output_view<const void>(d_o_.data(), problem_);
    in.logsumexp = logsumexp_.data();
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
      for (int64_t row = 0; row < t.length; ++row) {
        for (int64_t c = 0; c < t.head_dim; ++c) {
          store_element(t.data, t.dtype, t.offset(b, h, row) + c, value(b, h, row, c));
        }
      }
    }
  }
  if (problem_.pass == Pass::backward) compute_forward();
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

float CheckedOutputs::o(int64_t b, int64_t h, int64_t row, int64_t column) const {
  const auto view = output_view<const void>(o_.data(), problem_);
  return load_element(view.data, view.dtype, view.offset(b, h, row) + column);
}

float CheckedOutputs::logsumexp(int64_t b, int64_t h, int64_t row) const {
  return load_element(logsumexp_.data(), Dtype::fp32,
                      (b * problem_.q_heads + h) * problem_.q_len + row);
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
                  dense_view<const void>(out.logsumexp, Dtype::fp32, Layout::bhsd, p.batch,
                                         p.q_heads, p.q_len, 1));
  } else {
    expect_tensor("dq", expected.backward.dq, out.dq);
    expect_tensor("dk", expected.backward.dk, out.dk);
    expect_tensor("dv", expected.backward.dv, out.dv);
  }
}

std::vector<Problem> varied_problems(Pass pass, Mask mask, int64_t head_dim,
                                     std::optional<int64_t> head_dim_v) {
  struct Lengths {
    int64_t q_len, kv_len;
  };
  struct Heads {
    int64_t batch, q_heads, kv_heads;
  };
  // One more and one less than a step of the tiles, and enough for several tiles. Keys are longer
  // and shorter than queries, so that causal masks hide whole rows, whole tiles and parts of tiles.
  constexpr std::array<Lengths, 7> kLengths{
      {{1, 1}, {1, 33}, {31, 65}, {33, 31}, {65, 257}, {257, 33}, {97, 96}}};
  constexpr std::array<Heads, 3> kHeads{{{2, 1, 1}, {1, 4, 2}, {1, 3, 1}}};

  std::vector<Problem> problems;
  size_t turn = static_cast<size_t>(head_dim / kHeadDimStep);
  for (const Lengths& lengths : kLengths) {
    for (const Dtype dtype : kDtypes) {
      const Heads& heads = kHeads[turn % kHeads.size()];
      Problem p;
      p.pass = pass;
      p.dtype = dtype;
      p.mask = mask;
      p.layout = kLayouts[turn / kHeads.size() % kLayouts.size()];
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
      p.dtype = kDtypes[problems.size() % kDtypes.size()];
      p.mask = mask;
      p.layout = kLayouts[problems.size() % kLayouts.size()];
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
