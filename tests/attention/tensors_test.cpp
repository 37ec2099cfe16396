#include "attention/tensors.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace flashbench {
namespace {

Problem with_lengths(const std::vector<RequestLengths>& requests, Layout layout) {
  Problem p{.layout = layout, .q_heads = 3, .kv_heads = 3, .head_dim = 8};
  p.set_lengths(std::make_shared<const Lengths>(requests));
  return p;
}

TEST(Tensors, ARaggedViewHasTheRowsOfARequestBehindThoseOfTheOneBefore) {
  const Problem p = with_lengths({{2, 4}, {0, 1}, {5, 0}}, Layout::ragged);
  const TensorView q = query_view<void>(nullptr, p);
  EXPECT_EQ(q.elements(), 7 * 3 * 8);
  EXPECT_EQ(q.rows(1), 0);
  EXPECT_EQ(q.rows(2), 5);
  EXPECT_EQ(q.all_rows(), 7);
  EXPECT_EQ(q.offset(0, 1, 1), (1 * 3 + 1) * 8);
  EXPECT_EQ(q.offset(2, 2, 3), ((2 + 3) * 3 + 2) * 8);
  const ConstTensorView k = key_view<void>(nullptr, p);
  EXPECT_EQ(k.offset(1, 0, 0), 4 * 3 * 8);
  EXPECT_EQ(k.elements(), 5 * 3 * 8);
}

TEST(Tensors, AViewReachesEachElementOnce) {
  for (const Layout layout : kLayouts) {
    const Problem p = with_lengths({{2, 4}, {0, 1}, {5, 0}}, layout);
    for (const TensorView& t : {query_view<void>(nullptr, p), key_view<void>(nullptr, p),
                                logsumexp_view<void>(nullptr, p)}) {
      std::set<int64_t> reached;
      for (int64_t b = 0; b < t.batch; ++b) {
        for (int64_t h = 0; h < t.heads; ++h) {
          for (int64_t row = 0; row < t.rows(b); ++row) {
            for (int64_t c = 0; c < t.head_dim; ++c) reached.insert(t.offset(b, h, row) + c);
          }
        }
      }
      EXPECT_EQ(static_cast<int64_t>(reached.size()), t.elements());
      EXPECT_EQ(*reached.begin(), 0);
      EXPECT_EQ(*reached.rbegin(), t.elements() - 1);
    }
  }
}

TEST(Tensors, ARequestHasTheElementsThatItHasInItsBatch) {
  for (const Layout layout : kLayouts) {
    const Problem p = with_lengths({{2, 4}, {0, 1}, {5, 0}, {1, 1}}, layout);
    std::vector<float> data(static_cast<size_t>(p.query_elements()));
    const TensorView q = query_view<void>(data.data(), p);
    for (int64_t b = 0; b < p.batch; ++b) {
      const TensorView one = request_view(q, b, p.q_len_of(b));
      EXPECT_EQ(one.batch, 1);
      EXPECT_EQ(one.length, p.q_len_of(b));
      EXPECT_EQ(one.ragged, nullptr);
      for (int64_t row = 0; row < one.length; ++row) {
        EXPECT_EQ(static_cast<float*>(one.data) + one.offset(0, 2, row),
                  data.data() + q.offset(b, 2, row));
      }
    }
    EXPECT_EQ(request_view(query_view<void>(nullptr, p), 2, 5).data, nullptr);
    Outputs outputs;
    outputs.logsumexp = data.data();
    EXPECT_EQ(request_outputs(p, outputs, 2).logsumexp, data.data() + p.query_index(2, 0, 0));
  }
}

TEST(Tensors, APagedViewGoesThroughTheTable) {
  Problem p = with_lengths({{2, 4}, {0, 1}, {5, 6}}, Layout::ragged);
  p.page_size = 4;
  const std::vector<int32_t> table{4, 99, 99, 0, 99, 99, 2, 3, 99};
  for (const KvLayout layout : kKvLayouts) {
    p.kv_layout = layout;
    const ConstTensorView pool = key_view<const void>(nullptr, p);
    EXPECT_EQ(pool.batch, 5);  // four pages and one more
    EXPECT_EQ(pool.length, 4);
    EXPECT_EQ(pool.elements(), 5 * 4 * 3 * 8);
    const ConstTensorView k = paged_view(pool, p, table.data(), 3);
    EXPECT_EQ(k.batch, 3);
    EXPECT_EQ(k.length, 6);
    EXPECT_EQ(k.rows(2), 6);
    EXPECT_EQ(k.elements(), 11 * 3 * 8);
    const bool nhd = layout == KvLayout::paged_nhd;
    EXPECT_EQ(k.offset(0, 1, 3), 4 * 96 + (nhd ? (3 * 3 + 1) * 8 : (1 * 4 + 3) * 8));
    EXPECT_EQ(k.offset(1, 0, 0), 0);
    EXPECT_EQ(k.offset(2, 2, 5), 3 * 96 + (nhd ? (1 * 3 + 2) * 8 : (2 * 4 + 1) * 8));
    EXPECT_EQ(k.end_of_run(3), 4);
    EXPECT_EQ(k.end_of_run(4), 8);
    EXPECT_EQ(pool.end_of_run(3), 4);
    const ConstTensorView one = request_view(k, 2, 6);
    EXPECT_EQ(one.elements(), 6 * 3 * 8);
    for (const int64_t row : {0, 3, 5}) EXPECT_EQ(one.offset(0, 1, row), k.offset(2, 1, row));
  }
}

TEST(Tensors, ALogsumexpIsWhereTheProblemSays) {
  for (const Layout layout : kLayouts) {
    const Problem p = with_lengths({{2, 4}, {0, 1}, {5, 0}}, layout);
    const TensorView t = logsumexp_view<void>(nullptr, p);
    EXPECT_EQ(t.elements(), p.query_rows());
    for (int64_t h = 0; h < 3; ++h) EXPECT_EQ(t.offset(2, h, 4), p.query_index(2, h, 4));
  }
}

}  // namespace
}  // namespace flashbench
