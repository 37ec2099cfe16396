// Which rows are checked if the budget does not suffice for all.
#include "verify/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "attention_case.h"

namespace flashbench::verify {

namespace {

Problem problem_of(Pass pass, int64_t length) {
  Problem p;
  p.pass = pass;
  p.batch = 2;
  p.q_heads = 6;
  p.kv_heads = 3;
  p.q_len = length;
  p.kv_len = length + 40;
  p.head_dim = 16;
  return p;
}

using Heads = std::map<std::pair<int64_t, int64_t>, std::set<int64_t>>;

Heads rows_by_head(const std::vector<RowBlock>& blocks) {
  Heads heads;
  for (const RowBlock& block : blocks) {
    EXPECT_FALSE(block.rows.empty());
    EXPECT_TRUE(std::is_sorted(block.rows.begin(), block.rows.end()));
    std::set<int64_t>& rows = heads[{block.batch, block.head}];
    for (const int64_t row : block.rows) EXPECT_TRUE(rows.insert(row).second) << "row twice";
  }
  return heads;
}

void expect_whole(const Heads& heads, int64_t count, int64_t length) {
  EXPECT_EQ(static_cast<int64_t>(heads.size()), count);
  for (const auto& [head, rows] : heads) {
    EXPECT_EQ(static_cast<int64_t>(rows.size()), length);
    EXPECT_EQ(*rows.begin(), 0);
    EXPECT_EQ(*rows.rbegin(), length - 1);
  }
}

bool same(const std::vector<RowBlock>& a, const std::vector<RowBlock>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.batch == y.batch && x.head == y.head && x.rows == y.rows;
  });
}

TEST(Sampling, EverythingWithinTheBudget) {
  const Selection forward = select_rows(problem_of(Pass::forward, 300), {});
  EXPECT_FALSE(forward.sampled);
  expect_whole(rows_by_head(forward.queries), 12, 300);
  EXPECT_TRUE(forward.keys.empty());

  const Selection backward = select_rows(problem_of(Pass::backward, 300), {});
  EXPECT_FALSE(backward.sampled);
  expect_whole(rows_by_head(backward.queries), 12, 300);
  expect_whole(rows_by_head(backward.keys), 6, 340);
}

// The share that is checked depends on the work, so that a long head_dim of V's own costs rows.
TEST(Sampling, CountsTheHeadDimOfEachProduct) {
  for (const Pass pass : kPasses) {
    Problem p = problem_of(pass, 3000);
    const auto checked = [&](std::optional<int64_t> head_dim_v) {
      p.head_dim_v = head_dim_v;
      int64_t rows = 0;
      for (const RowBlock& block : select_rows(p, {2e8, 5}).queries) {
        rows += static_cast<int64_t>(block.rows.size());
      }
      return rows;
    };
    const int64_t rows = checked(std::nullopt);
    EXPECT_EQ(checked(16), rows);
    EXPECT_LT(checked(256), rows);
    EXPECT_GT(checked(8), rows);
  }
}

TEST(Sampling, RowsOfEveryHeadHoldTheEndsAndTileEdges) {
  const Problem p = problem_of(Pass::forward, 3000);
  const Selection selection = select_rows(p, {2e8, 5});
  EXPECT_TRUE(selection.sampled);
  const Heads heads = rows_by_head(selection.queries);
  EXPECT_EQ(heads.size(), 12u);
  std::set<std::set<int64_t>> different;
  for (const auto& [head, rows] : heads) {
    EXPECT_GE(rows.size(), 16u);
    EXPECT_LT(rows.size(), 3000u);
    for (const int64_t row : {0, 63, 64, 65, 127, 128, 129, 2998, 2999}) {
      EXPECT_TRUE(rows.count(row)) << row;
    }
    EXPECT_LT(*rows.rbegin(), 3000);
    different.insert(rows);
  }
  EXPECT_EQ(different.size(), 12u);
}

// Where a window starts to move, and where it stops: an error there is in no other row.
TEST(Sampling, RowsHoldTheEdgesOfAWindow) {
  Problem p = problem_of(Pass::backward, 3000);  // and 3040 keys
  p.window_left = 500;
  p.window_right = 200;
  const Selection selection = select_rows(p, {1, 5});
  EXPECT_TRUE(selection.sampled);
  for (const auto& [head, rows] : rows_by_head(selection.queries)) {
    // Query 460's own key is 500, query 2799's 2839.
    for (const int64_t row : {460, 461, 2798, 2799}) EXPECT_TRUE(rows.count(row)) << row;
  }
  for (const auto& [head, rows] : rows_by_head(selection.keys)) {
    // Query 0 sees keys to 240, query 2999 from 2539 on.
    for (const int64_t row : {240, 241, 2538, 2539}) EXPECT_TRUE(rows.count(row)) << row;
  }
}

TEST(Sampling, RowsHoldTheFirstAndTheLastThatSeeAnything) {
  Problem p = problem_of(Pass::forward, 3000);
  p.kv_len = 1000;
  p.mask = Mask::causal_top_left;
  p.window_left = 300;
  const Selection selection = select_rows(p, {1, 5});
  for (const auto& [head, rows] : rows_by_head(selection.queries)) {
    for (const int64_t row : {300, 301, 999, 1299, 1300}) EXPECT_TRUE(rows.count(row)) << row;
  }
}

TEST(Sampling, SomeHeadsHoldTheFirstAndTheLast) {
  const Selection selection = select_rows(problem_of(Pass::forward, 3000), {2e7, 5});
  const Heads heads = rows_by_head(selection.queries);
  EXPECT_GE(heads.size(), 2u);
  EXPECT_LT(heads.size(), 12u);
  EXPECT_TRUE(heads.count({0, 0}));
  EXPECT_TRUE(heads.count({1, 5}));
}

TEST(Sampling, SpendsAboutTheBudget) {
  const Problem p = problem_of(Pass::forward, 3000);
  for (const double budget : {3e7, 1e8, 1e9}) {
    double flops = 0;
    for (const RowBlock& block : select_rows(p, {budget, 1}).queries) {
      flops +=
          static_cast<double>(block.rows.size()) * 6.0 * static_cast<double>(p.head_dim * p.kv_len);
    }
    EXPECT_LE(flops, budget);
    EXPECT_GE(flops, budget / 2);
  }
}

TEST(Sampling, IsNoSampleWhereTheLeastIsEverything) {
  Problem p = problem_of(Pass::forward, 5);
  p.batch = p.q_heads = p.kv_heads = 1;
  const Selection selection = select_rows(p, {1, 1});
  EXPECT_FALSE(selection.sampled);
  expect_whole(rows_by_head(selection.queries), 1, 5);
}

TEST(Sampling, BackwardTakesWholeKeyHeads) {
  const Problem p = problem_of(Pass::backward, 500);
  const double group = 11 * 2.0 * 16 * 2 * 500 * 540;
  const Selection selection = select_rows(p, {3.5 * group, 1});
  EXPECT_TRUE(selection.sampled);
  const Heads keys = rows_by_head(selection.keys);
  expect_whole(keys, 3, 540);
  EXPECT_TRUE(keys.count({0, 0}));
  EXPECT_TRUE(keys.count({1, 2}));
  const Heads queries = rows_by_head(selection.queries);
  expect_whole(queries, 6, 500);
  for (const auto& [head, rows] : queries) {
    EXPECT_TRUE(keys.count({head.first, head.second / 2}));
  }
}

TEST(Sampling, BackwardTakesRowsOfOneKeyHeadWhereThatIsTooMuch) {
  const Selection selection = select_rows(problem_of(Pass::backward, 500), {1e6, 1});
  EXPECT_TRUE(selection.sampled);
  const Heads keys = rows_by_head(selection.keys), queries = rows_by_head(selection.queries);
  EXPECT_EQ(keys.size(), 1u);
  EXPECT_EQ(queries.size(), 2u);
  for (const auto& [head, rows] : keys) EXPECT_TRUE(rows.count(0) && rows.count(539));
  for (const auto& [head, rows] : queries) EXPECT_TRUE(rows.count(0) && rows.count(499));
}

// ---- requests of different lengths

Problem of_requests(Pass pass, const std::vector<RequestLengths>& requests) {
  Problem p = problem_of(pass, 1);
  p.layout = Layout::ragged;
  p.set_lengths(std::make_shared<const Lengths>(requests));
  return p;
}

const std::vector<RequestLengths> kRequests{{0, 9}, {30, 40}, {500, 700}, {1, 1}, {20, 0}, {0, 0}};

TEST(Sampling, EveryRowOfEachRequestWithinTheBudget) {
  for (const Pass pass : kPasses) {
    const Selection all = select_rows(of_requests(pass, kRequests), {});
    EXPECT_FALSE(all.sampled);
    const Heads queries = rows_by_head(all.queries), keys = rows_by_head(all.keys);
    EXPECT_EQ(queries.size(), 6u * 4);  // those with any queries
    for (const auto& [head, rows] : queries) {
      EXPECT_EQ(static_cast<int64_t>(rows.size()),
                kRequests[static_cast<size_t>(head.first)].q_len);
    }
    if (pass == Pass::forward) continue;
    EXPECT_EQ(keys.size(), 3u * 4);
    for (const auto& [head, rows] : keys) {
      EXPECT_EQ(static_cast<int64_t>(rows.size()),
                kRequests[static_cast<size_t>(head.first)].kv_len);
    }
  }
}

// Where only a little can be checked, it is of the request with the most work, and never nothing.
TEST(Sampling, TheRequestWithTheMostPairsIsAlwaysInTheSample) {
  for (const Pass pass : kPasses) {
    for (const double budget : {0.0, 1e3, 1e5, 1e7}) {
      const Problem p = of_requests(pass, kRequests);
      const Selection some = select_rows(p, {budget, 1});
      EXPECT_TRUE(some.sampled);
      const Heads queries = rows_by_head(some.queries);
      EXPECT_TRUE(std::any_of(queries.begin(), queries.end(), [](const auto& head) {
        return head.first.first == 2;
      })) << budget;
      for (const auto& [head, rows] : queries) {
        EXPECT_LT(*rows.rbegin(), kRequests[static_cast<size_t>(head.first)].q_len);
      }
    }
  }
}

TEST(Sampling, OneLongRequestAmongManyShortOnesIsSampledToo) {
  std::vector<RequestLengths> requests(300, {1, 16});
  requests[123] = {1, 20000};
  const Selection some = select_rows(of_requests(Pass::forward, requests), {2e6, 1});
  EXPECT_TRUE(some.sampled);
  const Heads queries = rows_by_head(some.queries);
  EXPECT_TRUE(std::any_of(queries.begin(), queries.end(),
                          [](const auto& head) { return head.first.first == 123; }));
}

TEST(Sampling, FollowsFromTheSeed) {
  for (const Pass pass : kPasses) {
    const Problem p = problem_of(pass, 2000);
    const Selection once = select_rows(p, {2e7, 9}), again = select_rows(p, {2e7, 9}),
                    other = select_rows(p, {2e7, 10});
    EXPECT_TRUE(same(once.queries, again.queries) && same(once.keys, again.keys));
    EXPECT_FALSE(same(once.queries, other.queries) && same(once.keys, other.keys));
  }
}

TEST(Sampling, TheVerdictSaysHowMuchWasChecked) {
  const std::unique_ptr<Device> device = make_host_device(2);
  for (const Pass pass : kPasses) {
    AttentionCase attention(problem_of(pass, 200), {}, *device);
    attention.make_oracle({2e6, 4});
    const Verdict verdict = attention.judge({});
    EXPECT_TRUE(verdict.passed()) << verdict.reason;
    EXPECT_TRUE(verdict.sampled);
    int64_t checked = 0;
    for (const TensorError& error : verdict.tensors) checked += error.checked;
    const Problem& p = attention.problem;
    const int64_t all = pass == Pass::forward ? p.query_elements() + p.query_rows()
                                              : p.query_elements() + 2 * p.key_elements();
    EXPECT_GT(checked, 0);
    EXPECT_LT(checked, all);
    EXPECT_DOUBLE_EQ(verdict.checked_fraction,
                     static_cast<double>(checked) / static_cast<double>(all));
  }
}

// Sampled rows have the same values and errors as in a full reference.
TEST(Sampling, SampledRowsAreJudgedAsInTheFullReference) {
  const std::unique_ptr<Device> device = make_host_device(2);
  for (const Pass pass : kPasses) {
    AttentionCase attention(problem_of(pass, 200), {}, *device);
    attention.make_oracle();
    EXPECT_FALSE(attention.judge({64, true, false, false, Defect::scale_one_percent}).passed());
    const Verdict full = attention.judge({});
    attention.make_oracle({2e6, 4});
    const Verdict sample = attention.judge({});
    EXPECT_FALSE(attention.judge({64, true, false, false, Defect::stale_row}).passed());
    for (size_t i = 0; i < full.tensors.size(); ++i) {
      EXPECT_LE(sample.tensors[i].max_abs, full.tensors[i].max_abs * (1 + 1e-6));
      EXPECT_GE(sample.tensors[i].max_abs, full.tensors[i].max_abs / 10);
      EXPECT_LE(sample.tensors[i].lambda, full.tensors[i].lambda * (1 + 1e-6));
    }
  }
}

}  // namespace

}  // namespace flashbench::verify
