#include "case/rotated_heads.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "attention/lengths.h"

namespace flashbench {
namespace {

Problem backward_problem(Layout layout, int64_t q_heads, int64_t kv_heads) {
  Problem p{.pass = Pass::backward,
            .layout = layout,
            .batch = 2,
            .q_heads = q_heads,
            .kv_heads = kv_heads,
            .q_len = 3,
            .kv_len = 5,
            .head_dim = 8};
  if (layout == Layout::ragged) {
    p.set_lengths(std::make_shared<const Lengths>(std::vector<RequestLengths>{{3, 5}, {1, 4}}));
  }
  return p;
}

// Inputs whose elements are all different.
struct Numbered {
  explicit Numbered(const Problem& p)
      : q(numbers(p.query_elements(), 0)),
        k(numbers(p.key_elements(), 1000)),
        v(numbers(p.value_elements(), 2000)),
        o(numbers(p.output_elements(), 3000)),
        d_o(numbers(p.output_elements(), 4000)),
        logsumexp(numbers(p.query_rows(), 5000)) {
    inputs.q = query_view<const void>(q.data(), p);
    inputs.k = key_view<const void>(k.data(), p);
    inputs.v = value_view<const void>(v.data(), p);
    inputs.o = output_view<const void>(o.data(), p);
    inputs.d_o = output_view<const void>(d_o.data(), p);
    inputs.logsumexp = logsumexp.data();
  }
  static std::vector<float> numbers(int64_t count, float first) {
    std::vector<float> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), first);
    return all;
  }
  std::vector<float> q, k, v, o, d_o, logsumexp;
  Inputs inputs;
};

float at(const ConstTensorView& t, int64_t b, int64_t h, int64_t row) {
  return static_cast<const float*>(t.data)[t.offset(b, h, row)];
}

TEST(RotatedHeads, TakeThePlaceOfTheNext) {
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::ragged}) {
    for (const int64_t kv_heads : {1, 2, 6}) {
      const Problem p = backward_problem(layout, 6, kv_heads);
      const Numbered before(p);
      const RotatedHeads rotated(p, before.inputs);
      const Inputs &a = before.inputs, &b = rotated.inputs();
      const int64_t group = 6 / kv_heads, by = kv_heads == 1 ? 1 : group;
      for (int64_t request = 0; request < p.batch; ++request) {
        for (int64_t h = 0; h < 6; ++h) {
          const int64_t to = (h + by) % 6;
          EXPECT_EQ(at(b.q, request, to, 0), at(a.q, request, h, 0));
          EXPECT_EQ(at(b.o, request, to, 0), at(a.o, request, h, 0));
          EXPECT_EQ(at(b.d_o, request, to, 0), at(a.d_o, request, h, 0));
          EXPECT_EQ(at(logsumexp_view<const void>(b.logsumexp, p), request, to, 0),
                    at(logsumexp_view<const void>(a.logsumexp, p), request, h, 0));
          // The query heads keep their K and V.
          EXPECT_EQ(at(b.k, request, to / group, 3), at(a.k, request, h / group, 3));
          EXPECT_EQ(at(b.v, request, to / group, 3), at(a.v, request, h / group, 3));
        }
      }
    }
  }
}

TEST(RotatedHeads, TurnBack) {
  for (const int64_t kv_heads : {1, 3}) {
    const Problem p = backward_problem(Layout::bshd, 6, kv_heads);
    const Numbered before(p);
    const RotatedHeads rotated(p, before.inputs);
    const auto copy = [](const ConstTensorView& t) {
      const auto* data = static_cast<const float*>(t.data);
      return std::vector<float>(data, data + t.elements());
    };
    std::vector<float> dq = copy(rotated.inputs().q), dk = copy(rotated.inputs().k),
                       dv = copy(rotated.inputs().v);
    Outputs outputs;
    outputs.dq = query_view<void>(dq.data(), p);
    outputs.dk = key_view<void>(dk.data(), p);
    outputs.dv = value_view<void>(dv.data(), p);
    EXPECT_NE(dq, before.q);
    rotated.turn_back(outputs);
    EXPECT_EQ(dq, before.q);
    EXPECT_EQ(dk, before.k);
    EXPECT_EQ(dv, before.v);
  }
}

TEST(RotatedHeads, AreOfProblemsWithSeveral) {
  EXPECT_TRUE(has_heads_to_rotate(backward_problem(Layout::bshd, 2, 1)));
  EXPECT_FALSE(has_heads_to_rotate(backward_problem(Layout::bshd, 1, 1)));
}

}  // namespace
}  // namespace flashbench
