#include "attention/problem.h"
#include "attention/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace flashbench {
namespace {

// What a query sees, by the definition of the masks and of FlashAttention's window_size.
bool sees(const Problem& p, int64_t query, int64_t key) {
  const int64_t own = p.mask == Mask::causal_top_left ? query : query + p.kv_len - p.q_len;
  if (p.mask != Mask::none && key > own) return false;
  if (p.window_left && key < own - *p.window_left) return false;
  return !p.window_right || key <= own + *p.window_right;
}

// Every mask, small lengths and windows.
template <typename Body>
void for_small_problems(const Body& body) {
  using Window = std::optional<int64_t>;
  for (const Mask mask : kMasks) {
    for (int64_t q_len = 1; q_len <= 6; ++q_len) {
      for (int64_t kv_len = 1; kv_len <= 6; ++kv_len) {
        for (const Window left : {Window(), Window(0), Window(1), Window(3), Window(100)}) {
          for (const Window right : {Window(), Window(0), Window(2), Window(100)}) {
            Problem p{.mask = mask, .q_len = q_len, .kv_len = kv_len};
            p.window_left = left;
            p.window_right = right;
            SCOPED_TRACE(p.id() + " left " + std::to_string(left.value_or(-1)) + " right " +
                         std::to_string(right.value_or(-1)));
            body(p);
          }
        }
      }
    }
  }
}

TEST(Problem, RangesAreWhatQueriesSee) {
  for_small_problems([](const Problem& p) {
    int64_t pairs = 0;
    for (int64_t query = 0; query < p.q_len; ++query) {
      for (int64_t key = 0; key < p.kv_len; ++key) {
        pairs += sees(p, query, key) ? 1 : 0;
        ASSERT_EQ(p.visible_keys(query).contains(key), sees(p, query, key)) << query << " " << key;
        ASSERT_EQ(p.queries_that_see(key).contains(query), sees(p, query, key))
            << query << " " << key;
      }
    }
    EXPECT_EQ(p.unmasked_pairs(), pairs);
  });
}

// Loops over tiles rely on it.
TEST(Problem, RangesRiseWithTheRowAndLieWithinTheProblem) {
  for_small_problems([](const Problem& p) {
    RowRange before{0, 0};
    for (int64_t query = 0; query < p.q_len; ++query) {
      const RowRange keys = p.visible_keys(query);
      EXPECT_GE(keys.first, before.first);
      EXPECT_GE(keys.end, std::max(keys.first, before.end));
      EXPECT_LE(keys.end, p.kv_len);
      before = keys;
    }
    before = {0, 0};
    for (int64_t key = 0; key < p.kv_len; ++key) {
      const RowRange queries = p.queries_that_see(key);
      EXPECT_GE(queries.first, before.first);
      EXPECT_GE(queries.end, std::max(queries.first, before.end));
      EXPECT_LE(queries.end, p.q_len);
      before = queries;
    }
  });
}

TEST(Problem, SeenKeysAreThoseThatAnyQuerySees) {
  for_small_problems([](const Problem& p) {
    for (int64_t key = 0; key < p.kv_len; ++key) {
      EXPECT_EQ(p.seen_keys().contains(key), !p.queries_that_see(key).empty()) << key;
    }
  });
}

TEST(Problem, CausalAlignments) {
  const Problem top{.mask = Mask::causal_top_left, .q_len = 2, .kv_len = 5};
  EXPECT_EQ(top.visible_keys(0), (RowRange{0, 1}));
  EXPECT_EQ(top.visible_keys(1), (RowRange{0, 2}));
  const Problem bottom{.mask = Mask::causal_bottom_right, .q_len = 2, .kv_len = 5};
  EXPECT_EQ(bottom.visible_keys(0), (RowRange{0, 4}));
  EXPECT_EQ(bottom.visible_keys(1), (RowRange{0, 5}));
  const Problem empty_rows{.mask = Mask::causal_bottom_right, .q_len = 5, .kv_len = 2};
  EXPECT_TRUE(empty_rows.visible_keys(2).empty());
  EXPECT_EQ(empty_rows.visible_keys(3), (RowRange{0, 1}));
  const Problem more_queries{.mask = Mask::causal_top_left, .q_len = 5, .kv_len = 2};
  EXPECT_EQ(more_queries.visible_keys(4), (RowRange{0, 2}));
}

// Keys i + seqlen_k - seqlen_q - left to i + seqlen_k - seqlen_q + right (flash_attn_func).
TEST(Problem, WindowsAlign) {
  Problem p{.mask = Mask::none, .q_len = 2, .kv_len = 5};
  p.window_left = 1;
  p.window_right = 0;
  EXPECT_EQ(p.visible_keys(0), (RowRange{2, 4}));
  EXPECT_EQ(p.visible_keys(1), (RowRange{3, 5}));
  p.mask = Mask::causal_top_left;
  EXPECT_EQ(p.visible_keys(0), (RowRange{0, 1}));
  EXPECT_EQ(p.visible_keys(1), (RowRange{0, 2}));
}

TEST(Problem, AWindowHidesKeysFromTheLimits) {
  Problem p{.mask = Mask::causal_bottom_right, .kv_heads = 1, .kv_len = 1024, .head_dim = 128};
  p.window_left = 127;
  EXPECT_EQ(p.seen_keys(), (RowRange{896, 1024}));
  EXPECT_DOUBLE_EQ(p.flops(), 4.0 * 128 * 128);
  EXPECT_DOUBLE_EQ(p.flops_convention(), p.flops());
  EXPECT_EQ(p.tensor_bytes(), 4 * (2 * 128 + 2 * 1024 * 128) + 4);
  EXPECT_EQ(p.compulsory_bytes(), 4 * (2 * 128 + 2 * 128 * 128) + 4);
  p.pass = Pass::backward;  // every row of dK and dV is written
  EXPECT_EQ(p.compulsory_bytes(), 4 * (4 * 128 + 2 * 128 * 128 + 2 * 1024 * 128) + 4);
}

TEST(Problem, NobodyReadsKeysThatACausalMaskHidesFromAllQueries) {
  Problem p{.mask = Mask::causal_top_left, .q_len = 100, .kv_len = 1024, .head_dim = 128};
  Problem seen = p;
  seen.kv_len = 100;
  EXPECT_EQ(p.compulsory_bytes(), seen.compulsory_bytes());
  p.page_size = seen.page_size = 16;
  EXPECT_EQ(p.compulsory_bytes(), seen.compulsory_bytes());
  p.page_size = std::nullopt;
  p.pass = Pass::backward;  // every row of dK and dV is written
  EXPECT_EQ(p.compulsory_bytes(), p.tensor_bytes() - 4 * 2 * 924 * 128);
  p.mask = Mask::causal_bottom_right;
  EXPECT_EQ(p.compulsory_bytes(), p.tensor_bytes());
}

// Other tools count 512, 1, 1023.5 and 1024 pairs here; 1024 is correct.
TEST(Problem, OneQueryAgainstManyKeysSeesThemAll) {
  const Problem p{.mask = Mask::causal_bottom_right, .q_len = 1, .kv_len = 1024, .head_dim = 128};
  EXPECT_EQ(p.unmasked_pairs(), 1024);
  EXPECT_DOUBLE_EQ(p.flops(), 4.0 * 1024 * 128);
  EXPECT_DOUBLE_EQ(p.flops_convention(), 2.0 * 1024 * 128);
}

TEST(Problem, FlopsAndBytes) {
  Problem p{.dtype = Dtype::bf16,
            .batch = 2,
            .q_heads = 8,
            .kv_heads = 2,
            .q_len = 512,
            .kv_len = 256,
            .head_dim = 64};
  EXPECT_DOUBLE_EQ(p.flops(), 4.0 * 2 * 8 * 512 * 256 * 64);
  EXPECT_DOUBLE_EQ(p.flops(), p.flops_convention());
  const int64_t query = 2 * 8 * 512 * 64, key = 2 * 2 * 256 * 64, rows = 2 * 8 * 512;
  EXPECT_EQ(p.compulsory_bytes(), 2 * (2 * query + 2 * key) + 4 * rows);
  p.pass = Pass::backward;
  EXPECT_DOUBLE_EQ(p.flops(), 10.0 * 2 * 8 * 512 * 256 * 64);
  EXPECT_EQ(p.compulsory_bytes(), 2 * (4 * query + 4 * key) + 4 * rows);
}

// QK^T, dS K and dS^T Q are products over head_dim, PV, dO V^T and P^T dO over head_dim_v.
TEST(Problem, FlopsAndBytesWithAHeadDimOfItsOwnForV) {
  Problem p{.dtype = Dtype::bf16,
            .batch = 2,
            .q_heads = 8,
            .kv_heads = 2,
            .q_len = 512,
            .kv_len = 256,
            .head_dim = 192,
            .head_dim_v = 128};
  const double pairs = 2 * 8 * 512 * 256;
  EXPECT_DOUBLE_EQ(p.flops(), 2 * pairs * (192 + 128));
  EXPECT_DOUBLE_EQ(p.flops_convention(), 2 * pairs * (192 + 128));
  const int64_t q = 2 * 8 * 512 * 192, o = 2 * 8 * 512 * 128;
  const int64_t k = 2 * 2 * 256 * 192, v = 2 * 2 * 256 * 128, rows = 2 * 8 * 512;
  EXPECT_EQ(p.query_elements(), q);
  EXPECT_EQ(p.output_elements(), o);
  EXPECT_EQ(p.key_elements(), k);
  EXPECT_EQ(p.value_elements(), v);
  EXPECT_EQ(p.compulsory_bytes(), 2 * (q + k + v + o) + 4 * rows);
  p.pass = Pass::backward;
  EXPECT_DOUBLE_EQ(p.flops(), 2 * pairs * (3 * 192 + 2 * 128));
  EXPECT_DOUBLE_EQ(p.flops_convention(), 2.5 * 2 * pairs * (192 + 128));
  EXPECT_EQ(p.compulsory_bytes(), 2 * 2 * (q + k + v + o) + 4 * rows);
}

TEST(Problem, HeadDimVIsHeadDimUnlessSet) {
  Problem p{.head_dim = 64};
  EXPECT_EQ(p.value_dim(), 64);
  p.head_dim_v = 256;
  EXPECT_EQ(p.value_dim(), 256);
  EXPECT_DOUBLE_EQ(p.softmax_scale(), 0.125);
}

TEST(Problem, ScaleDefaultsToTheSquareRoot) {
  Problem p{.head_dim = 64};
  EXPECT_DOUBLE_EQ(p.softmax_scale(), 0.125);
  p.scale = 0.5;
  EXPECT_DOUBLE_EQ(p.softmax_scale(), 0.5);
}

TEST(Problem, InvalidShapesGetASentence) {
  EXPECT_FALSE(Problem{}.invalid());
  EXPECT_TRUE((Problem{.batch = 0}).invalid());
  EXPECT_TRUE((Problem{.q_heads = 3, .kv_heads = 2}).invalid());
  EXPECT_TRUE((Problem{.kv_len = 0}).invalid());
  for (int64_t head_dim : {0, 4, 12, 264}) {
    EXPECT_TRUE((Problem{.head_dim = head_dim}).invalid()) << head_dim;
    EXPECT_EQ((Problem{.head_dim_v = head_dim}).invalid(),
              "head_dim_v must be a multiple of 8 from 8 to 256, got " + std::to_string(head_dim));
  }
  EXPECT_TRUE((Problem{.scale = std::nan("")}).invalid());
  EXPECT_TRUE((Problem{.window_left = -1}).invalid());
  EXPECT_TRUE((Problem{.window_right = -1}).invalid());
}

TEST(Problem, IdNamesEveryAxis) {
  Problem p{.batch = 2, .q_heads = 8, .kv_heads = 4, .q_len = 10, .kv_len = 20, .head_dim = 32};
  EXPECT_EQ(p.id(), "forward/fp32/none/bshd/b2/hq8/hkv4/q10/k20/d32");
  p.scale = 0.5;
  EXPECT_EQ(p.id(), "forward/fp32/none/bshd/b2/hq8/hkv4/q10/k20/d32/scale0.5");
}

// ---- lengths of each request

Problem of_lengths(const std::vector<RequestLengths>& requests, Layout layout = Layout::ragged) {
  Problem p{.dtype = Dtype::bf16, .layout = layout, .q_heads = 4, .kv_heads = 2, .head_dim = 64};
  p.set_lengths(std::make_shared<const Lengths>(requests));
  return p;
}

TEST(Problem, LengthsGiveTheBatchAndTheLongest) {
  const Problem p = of_lengths({{3, 50}, {20, 7}, {0, 1}});
  EXPECT_EQ(p.batch, 3);
  EXPECT_EQ(p.q_len, 20);
  EXPECT_EQ(p.kv_len, 50);
  EXPECT_EQ(p.q_tokens(), 23);
  EXPECT_EQ(p.kv_tokens(), 58);
  EXPECT_EQ(p.first_query(2), 23);
  EXPECT_EQ(p.invalid(), std::nullopt);
  EXPECT_EQ(of_lengths({{1, 0}}).invalid(), std::nullopt);
  EXPECT_NE(of_lengths({{0, 1}}).invalid(), std::nullopt);
  EXPECT_EQ((Problem{.layout = Layout::ragged}).invalid(),
            "layout ragged needs lengths, which say where each request begins");
}

TEST(Problem, ARequestIsAProblemOfItsOwn) {
  const Problem p = of_lengths({{3, 50}, {20, 7}});
  const Problem one = p.request(1);
  EXPECT_EQ(one, (Problem{.dtype = Dtype::bf16,
                          .q_heads = 4,
                          .kv_heads = 2,
                          .q_len = 20,
                          .kv_len = 7,
                          .head_dim = 64}));
  EXPECT_EQ(of_lengths({{3, 50}}, Layout::bhsd).request(0).layout, Layout::bhsd);
  const Problem equal{.batch = 3, .q_len = 5};
  EXPECT_EQ(equal.request(2), (Problem{.q_len = 5}));
}

TEST(Problem, MasksHoldForEachRequest) {
  Problem p = of_lengths({{3, 5}, {5, 3}});
  p.mask = Mask::causal_bottom_right;
  EXPECT_EQ(p.request(0).visible_keys(0), (RowRange{0, 3}));
  EXPECT_TRUE(p.request(1).visible_keys(1).empty());
  EXPECT_EQ(p.request(1).visible_keys(2), (RowRange{0, 1}));
  EXPECT_THROW(p.visible_keys(0), std::logic_error);  // there is no one answer
  EXPECT_THROW(p.queries_that_see(0), std::logic_error);
}

TEST(Problem, LengthsCountInFlopsAndBytesWithoutPadding) {
  for (const Pass pass : kPasses) {
    for (const Layout layout : kLayouts) {
      Problem p = of_lengths({{3, 50}, {20, 7}, {0, 4}, {2, 0}}, layout);
      p.pass = pass;
      p.mask = Mask::causal_bottom_right;
      double flops = 0, convention = 0;
      int64_t bytes = 0, pairs = 0;
      for (int64_t b = 0; b < p.batch; ++b) {
        const Problem one = p.request(b);
        flops += one.flops();
        convention += one.flops_convention();
        bytes += one.compulsory_bytes();
        pairs += one.unmasked_pairs();
      }
      EXPECT_EQ(pairs, 3 * 48 + 3 + 7 * 8 / 2);
      EXPECT_EQ(p.unmasked_pairs_of_batch(), pairs);
      EXPECT_DOUBLE_EQ(p.flops(), flops);
      EXPECT_DOUBLE_EQ(p.flops_convention(), convention);
      EXPECT_EQ(p.compulsory_bytes(), bytes);
      // Q, O, dQ, dO; K, V, dK, dV of all but the request without queries, whose keys are not read.
      const int64_t q = 4 * 64 * 25, k = 2 * 64 * 57, unread = 2 * 64 * 4, rows = 4 * 25;
      EXPECT_EQ(bytes, pass == Pass::forward ? 2 * (2 * q + 2 * k) + 4 * rows
                                             : 2 * (4 * q + 4 * k + 2 * unread) + 4 * rows);
    }
  }
}

TEST(Problem, PaddingIsAShareOfTheTensors) {
  EXPECT_EQ(of_lengths({{3, 50}, {20, 7}}).padding(), 0);
  EXPECT_EQ((Problem{.batch = 2, .q_len = 3}).padding(), 0);
  const Problem p = of_lengths({{10, 10}, {5, 5}}, Layout::bshd);
  EXPECT_DOUBLE_EQ(p.padding(), 0.25);
  EXPECT_EQ(p.query_elements(), 4 * 64 * 20);
  EXPECT_EQ(of_lengths({{10, 10}, {5, 5}}).query_elements(), 4 * 64 * 15);
}

TEST(Problem, TheLogsumexpOfARaggedProblemIsHeadByHead) {
  const Problem p = of_lengths({{3, 5}, {0, 5}, {2, 5}});
  EXPECT_EQ(p.query_rows(), 4 * 5);
  EXPECT_EQ(p.query_index(0, 0, 2), 2);
  EXPECT_EQ(p.query_index(2, 0, 0), 3);
  EXPECT_EQ(p.query_index(2, 3, 1), 3 * 5 + 4);
  EXPECT_EQ(of_lengths({{3, 5}, {2, 5}}, Layout::bshd).query_index(1, 2, 1), (4 + 2) * 3 + 1);
}

TEST(Problem, ProblemsOfEqualLengthsAreEqual) {
  EXPECT_EQ(of_lengths({{3, 5}, {2, 5}}), of_lengths({{3, 5}, {2, 5}}));
  EXPECT_FALSE(of_lengths({{3, 5}, {2, 5}}) == of_lengths({{3, 5}, {1, 5}}));
}

// ---- pages

Problem in_pages(const std::vector<RequestLengths>& requests, int64_t page_size) {
  Problem p = of_lengths(requests);
  p.page_size = page_size;
  return p;
}

TEST(Problem, PagesHoldTheKeysOfEachRequest) {
  const Problem p = in_pages({{1, 50}, {2, 16}, {1, 0}, {1, 17}}, 16);
  EXPECT_EQ(p.pages_of(0), 4);
  EXPECT_EQ(p.pages_of(1), 1);
  EXPECT_EQ(p.pages_of(2), 0);
  EXPECT_EQ(p.pages_of(3), 2);
  EXPECT_EQ(p.pages_with({16, 33}), 2);
  EXPECT_EQ(p.pages_with({15, 17}), 2);
  EXPECT_EQ(p.pages_with({5, 5}), 0);
  EXPECT_EQ(p.used_pages(), 7);
  EXPECT_EQ(p.pool_pages(), 9);
  EXPECT_EQ(p.table_width(), 5);
  EXPECT_EQ(p.key_elements(), 9 * 16 * 2 * 64);
  EXPECT_EQ(p.query_elements(), 5 * 4 * 64);
  EXPECT_EQ(p.invalid(), std::nullopt);
  EXPECT_EQ(of_lengths({{1, 50}}).pages_of(0), 0);
  EXPECT_EQ((Problem{.batch = 3, .kv_len = 33, .page_size = 16}).used_pages(), 9);
  EXPECT_EQ(in_pages({{1, 0}}, 16).pool_pages(), 0);
}

TEST(Problem, ARequestByItselfHasNoPages) {
  Problem p = in_pages({{3, 50}, {20, 7}}, 16);
  p.kv_layout = KvLayout::paged_hnd;
  p.page_order = PageOrder::linear;
  p.shared_prefix = 16;
  EXPECT_EQ(p.request(1), of_lengths({{3, 50}, {20, 7}}).request(1));
}

TEST(Problem, PagesChangeNoFlopsAndAddTheTableToTheBytes) {
  for (const int64_t page_size : {1, 16, 64}) {
    const Problem p = in_pages({{1, 50}, {2, 16}, {1, 0}, {0, 17}}, page_size);
    const Problem contiguous = of_lengths({{1, 50}, {2, 16}, {1, 0}, {0, 17}});
    EXPECT_DOUBLE_EQ(p.flops(), contiguous.flops());
    EXPECT_DOUBLE_EQ(p.flops_convention(), contiguous.flops_convention());
    // Of the last request nothing is read: it has no queries.
    const int64_t entries = (50 + page_size - 1) / page_size + (16 + page_size - 1) / page_size;
    EXPECT_EQ(p.compulsory_bytes(), contiguous.compulsory_bytes() + 4 * entries);
  }
}

TEST(Problem, SharedPagesAreReadOnce) {
  Problem p = in_pages({{1, 50}, {1, 40}, {1, 20}}, 16);
  const int64_t apart = p.compulsory_bytes(), row = 2 * 2 * 2 * 64;  // of K and V in bf16, 2 heads
  EXPECT_FALSE(p.shares_pages());
  p.shared_prefix = 15;  // no full page
  EXPECT_FALSE(p.shares_pages());
  EXPECT_EQ(p.compulsory_bytes(), apart);
  p.shared_prefix = 33;  // two full pages; of the last request one
  EXPECT_TRUE(p.shares_pages());
  EXPECT_EQ(p.used_pages(), 2 + 2 + 1 + 1);
  EXPECT_EQ(p.compulsory_bytes(), apart - row * (32 + 16));
  BlockTable same(3, 5, 4);
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t i = 0; i < p.pages_of(b); ++i) same.at(b, i) = static_cast<int32_t>(3 - i);
  }
  p.shared_prefix = std::nullopt;
  p.block_table = std::make_shared<const BlockTable>(same);
  EXPECT_EQ(p.invalid(), std::nullopt);
  EXPECT_TRUE(p.shares_pages());
  EXPECT_EQ(p.used_pages(), 4);
  EXPECT_EQ(p.pool_pages(), 4);
  EXPECT_EQ(p.compulsory_bytes(), apart - row * (40 + 20));
  // Windows at the ends of the requests: keys [40, 50), [30, 40) and [10, 20) of the same pages.
  p.window_left = 9;
  Problem windowed_apart = p;
  windowed_apart.block_table = nullptr;
  EXPECT_EQ(p.compulsory_bytes(), windowed_apart.compulsory_bytes());
  p.window_left = 14;  // [35, 50), [25, 40) and [5, 20): five rows twice
  windowed_apart.window_left = 14;
  EXPECT_EQ(p.compulsory_bytes(), windowed_apart.compulsory_bytes() - row * 5);
}

TEST(Problem, TheRestOfALastPageIsPadding) {
  Problem p{.batch = 2, .q_len = 1, .kv_len = 24, .head_dim = 64, .page_size = 16};
  const double rows = 2 * 24 + 2, with = 2 * 32 + 2;  // of K and Q
  EXPECT_NEAR(p.padding(), 1 - (rows * 128 * 4 + 8) / (with * 128 * 4 + 8), 1e-12);
  p.page_size = 24;
  EXPECT_EQ(p.padding(), 0);
}

TEST(Problem, SaysWhatIsWrongWithPages) {
  Problem p = in_pages({{1, 50}, {1, 0}}, 16);
  p.pass = Pass::backward;
  EXPECT_EQ(p.invalid(), "a paged K/V cache is for pass forward, got backward");
  p = of_lengths({{1, 50}});
  p.page_order = PageOrder::linear;
  EXPECT_EQ(p.invalid(), "kv_layout, page_order, shared_prefix and block_table need page_size");
  p = {.batch = 1 << 20, .kv_len = 1 << 20, .page_size = 1};
  EXPECT_EQ(p.invalid(),
            "expected pools of at most 2^30 pages and 2^40 elements, got up to 1.1e+12 pages of 1 "
            "rows and 7.037e+13 elements");
  EXPECT_NE((Problem{.page_size = 0}).invalid(), std::nullopt);
}

TEST(Problem, SaysWhatIsWrongWithABlockTable) {
  const auto wrong = [](const BlockTable& table) {
    Problem p = in_pages({{1, 50}, {1, 0}, {1, 3}}, 16);
    p.block_table = std::make_shared<const BlockTable>(table);
    return p.invalid().value_or("");
  };
  BlockTable table(3, 4, 9);
  for (const int64_t i : {0, 1, 2, 3}) table.at(0, i) = static_cast<int32_t>(2 * i);
  EXPECT_EQ(wrong(table),
            "block_table: request 2, page 0: expected a page from 0 to 8, found 2147480000");
  table.at(2, 0) = 9;
  EXPECT_EQ(wrong(table), "block_table: request 2, page 0: expected a page from 0 to 8, found 9");
  table.at(2, 0) = -1;
  EXPECT_EQ(wrong(table), "block_table: request 2, page 0: expected a page from 0 to 8, found -1");
  table.at(2, 0) = 8;
  EXPECT_EQ(wrong(table), "");
  EXPECT_EQ(wrong(table.in_pool_of(0)), "block_table: expected the number of pages of the pool");
  EXPECT_EQ(wrong(BlockTable(2, 4, 9)),
            "block_table: expected a row for each of 3 requests, found 2");
  EXPECT_EQ(wrong(BlockTable(3, 3, 9)),
            "block_table: request 0 has 50 keys and needs 4 pages of 16, found 3");
}

template <typename Enum, size_t N>
void expect_names_parse(const std::array<Enum, N>& values) {
  for (Enum value : values) EXPECT_EQ(parse<Enum>(name(value)), value);
  EXPECT_FALSE(parse<Enum>("nonsense"));
}

TEST(Problem, NamesParseBack) {
  expect_names_parse(kPasses);
  expect_names_parse(kDtypes);
  expect_names_parse(kDescales);
  expect_names_parse(kQuantizes);
  expect_names_parse(kMasks);
  expect_names_parse(kLayouts);
  expect_names_parse(kKvLayouts);
  expect_names_parse(kPageOrders);
  expect_names_parse(kDistributions);
}

Problem of_bytes() {
  return {.dtype = Dtype::e4m3,
          .batch = 2,
          .q_heads = 4,
          .kv_heads = 2,
          .q_len = 100,
          .kv_len = 300,
          .head_dim = 64};
}

TEST(Bytes, HaveFactorsAndAWiderOutput) {
  Problem p = of_bytes();
  EXPECT_EQ(p.output_dtype(), Dtype::bf16);
  EXPECT_EQ(p.query_descales(), 8);
  EXPECT_EQ(p.key_descales(), 4);
  // Q and O of 800 rows, K and V of 1200, 16 factors, the logsumexp.
  const int64_t elements = 800 * 64 + 2 * 1200 * 64 + 2 * 800 * 64;
  EXPECT_EQ(p.tensor_bytes(), elements + 4 * 16 + 4 * 800);
  EXPECT_EQ(p.compulsory_bytes(), p.tensor_bytes());
  p.descale = Descale::per_block;
  EXPECT_EQ(p.query_descales(), 8);
  EXPECT_EQ(p.key_descales(), 12);
  p.descale = Descale::per_tensor;
  EXPECT_EQ(p.query_descales(), 1);
  p.dtype = Dtype::bf16;
  EXPECT_EQ(p.key_descales(), 0);
}

TEST(Bytes, AreRefusedBesideWhatTheyCannotBe) {
  Problem p = of_bytes();
  EXPECT_EQ(p.invalid(), std::nullopt);
  p.pass = Pass::backward;
  EXPECT_EQ(p.invalid(), "dtype e4m3 has no backward pass");
  p = of_bytes();
  p.set_lengths(std::make_shared<const Lengths>(std::vector<RequestLengths>{{3, 4}}));
  EXPECT_EQ(p.invalid(), "dtype e4m3 takes requests of equal lengths only");
  p = of_bytes();
  p.page_size = 16;
  EXPECT_EQ(p.invalid(), "dtype e4m3 takes K and V without pages only");
  p = of_bytes();
  p.gpus = 2;
  EXPECT_EQ(p.invalid(), "dtype e4m3 is computed by one device");
  p = of_bytes();
  p.quantize = Quantize::int8_qk;
  EXPECT_EQ(p.invalid(), "quantize needs dtype bf16");
  p.dtype = Dtype::bf16;
  EXPECT_EQ(p.invalid(), std::nullopt);
  p.head_dim = 80;
  EXPECT_EQ(p.invalid(),
            "quantize int8_qk needs a head_dim that is a power of two, or 12 times one, got 80");
  p.quantize = Quantize::e4m3_block;
  EXPECT_EQ(p.invalid(), std::nullopt);
  p.pass = Pass::backward;
  EXPECT_EQ(p.invalid(), "quantize has no backward pass");
  p.pass = Pass::forward;
  p.descale = Descale::per_tensor;
  EXPECT_EQ(p.invalid(), "descale needs dtype or kv_dtype e4m3");
}

Problem of_a_cache() {
  Problem p = of_bytes();
  p.dtype = Dtype::bf16;
  p.kv_dtype = Dtype::e4m3;
  return p;
}

TEST(KvDtype, IsOfKAndVAlone) {
  const Problem p = of_a_cache();
  EXPECT_EQ(p.key_dtype(), Dtype::e4m3);
  EXPECT_EQ(p.output_dtype(), Dtype::bf16);
  EXPECT_FALSE(p.is_scaled());
  EXPECT_FALSE(p.is_quantized());
  EXPECT_EQ(p.without_kv_dtype().key_dtype(), Dtype::bf16);
}

// All requests have those of a head.
TEST(KvDtype, HasAFactorForEachHead) {
  Problem p = of_a_cache();
  EXPECT_EQ(p.query_descales(), 0);
  EXPECT_EQ(p.key_descales(), 2);
  const std::vector<float> factors{2, 3};
  EXPECT_EQ(query_descales_view(factors.data(), p).data, nullptr);
  EXPECT_EQ(key_descales_view(factors.data(), p).at(1, 1, 200), 3);
  p.descale = Descale::per_tensor;
  EXPECT_EQ(p.key_descales(), 1);
  EXPECT_EQ(key_descales_view(factors.data(), p).at(1, 1, 200), 2);
  EXPECT_EQ(p.without_kv_dtype().invalid(), std::nullopt);
}

// Q and O of 800 rows and 64 columns, 1200 rows of K and of V, the logsumexp, two factors of each.
TEST(KvDtype, CountsAByteAnElement) {
  Problem p = of_a_cache();
  const int64_t of_queries = 2 * 2 * 800 * 64 + 4 * 800, factors = 2 * 2 * 4;
  EXPECT_EQ(p.tensor_bytes(), of_queries + 2 * 1200 * 64 + factors);
  EXPECT_EQ(p.compulsory_bytes(), p.tensor_bytes());
  EXPECT_EQ(p.kv_bytes(), 2 * 1200 * 64);
  const int64_t dense = p.compulsory_bytes();
  p.page_size = 100;
  EXPECT_EQ(p.compulsory_bytes(), dense + 4 * 6);  // the block table's entries
  p.shared_prefix = 100;
  EXPECT_EQ(p.compulsory_bytes(), dense + 4 * 6 - 2 * 2 * 100 * 64);
  p = of_a_cache();
  p.set_lengths(
      std::make_shared<const Lengths>(std::vector<RequestLengths>{{100, 300}, {100, 100}}));
  EXPECT_EQ(p.compulsory_bytes(), of_queries + 2 * 2 * 400 * 64 + factors);
}

TEST(KvDtype, IsRefusedBesideWhatItCannotBe) {
  EXPECT_EQ(of_a_cache().invalid(), std::nullopt);
  const auto refused = [](const auto& change) {
    Problem p = of_a_cache();
    change(p);
    return p.invalid().value_or("");
  };
  for (const Dtype dtype : {Dtype::fp32, Dtype::e4m3}) {
    EXPECT_EQ(refused([&](Problem& p) { p.dtype = dtype; }), "kv_dtype needs dtype fp16 or bf16");
  }
  EXPECT_EQ(refused([](Problem& p) { p.descale = Descale::per_block; }),
            "kv_dtype has one factor for each K/V head, or one for all: descale per_block needs "
            "dtype e4m3");
  EXPECT_EQ(refused([](Problem& p) { p.quantize = Quantize::e4m3_head; }),
            "kv_dtype and quantize cannot be combined");
  EXPECT_EQ(refused([](Problem& p) { p.pass = Pass::backward; }), "kv_dtype has no backward pass");
  EXPECT_EQ(refused([](Problem& p) { p.gpus = 2; }), "kv_dtype is computed by one device");
}

}  // namespace
}  // namespace flashbench
