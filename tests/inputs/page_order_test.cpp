#include "inputs/page_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "attention/half.h"
#include "device/device.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"

namespace flashbench {
namespace {

using testing::ElementsAre;

constexpr int32_t kNone = BlockTable::kNoPage;

// Requests of 7, 4, 0 and 9 keys: 4 + 2 + 0 + 5 pages of 2.
Problem paged(PageOrder order, Layout layout = Layout::ragged) {
  Problem p{.layout = layout, .q_heads = 4, .kv_heads = 2, .head_dim = 8};
  p.set_lengths(
      std::make_shared<const Lengths>(std::vector<RequestLengths>{{3, 7}, {1, 4}, {5, 0}, {0, 9}}));
  p.page_size = 2;
  p.page_order = order;
  return p;
}

std::vector<int32_t> entries(const BlockTable& table) {
  return {table.data(), table.data() + table.requests() * table.width()};
}

TEST(PageOrder, Linear) {
  const BlockTable table = make_block_table(paged(PageOrder::linear), 1);
  EXPECT_EQ(table.pages(), 14);                                      // 11 and a quarter of them
  EXPECT_THAT(entries(table), ElementsAre(0, 1, 2, 3, kNone, kNone,  //
                                          4, 5, kNone, kNone, kNone, kNone,          //
                                          kNone, kNone, kNone, kNone, kNone, kNone,  //
                                          6, 7, 8, 9, 10, kNone));
}

TEST(PageOrder, Reversed) {
  const BlockTable table = make_block_table(paged(PageOrder::reversed), 1);
  EXPECT_THAT(entries(table), ElementsAre(13, 12, 11, 10, kNone, kNone,              //
                                          9, 8, kNone, kNone, kNone, kNone,          //
                                          kNone, kNone, kNone, kNone, kNone, kNone,  //
                                          7, 6, 5, 4, 3, kNone));
}

// The first pages were computed by an independent program from the formula in docs/verifying.md.
TEST(PageOrder, ShuffledIsTheSameInEveryRun) {
  const BlockTable table = make_block_table(paged(PageOrder::shuffled), 1);
  EXPECT_EQ(table, make_block_table(paged(PageOrder::shuffled), 1));
  EXPECT_NE(entries(table), entries(make_block_table(paged(PageOrder::shuffled), 2)));
  std::set<int32_t> used;
  for (const int32_t page : entries(table)) {
    if (page == kNone) continue;
    EXPECT_TRUE(page >= 0 && page < 14);
    EXPECT_TRUE(used.insert(page).second);
  }
  EXPECT_EQ(used.size(), 11u);
  EXPECT_THAT(std::vector<int32_t>(table.data(), table.data() + 4), ElementsAre(5, 6, 11, 0));
}

// Of 5 keys all requests have two full pages in common, if they have as many keys.
TEST(PageOrder, RequestsShareTheFullPagesOfAPrefix) {
  Problem p = paged(PageOrder::linear);
  p.shared_prefix = 5;
  EXPECT_THAT(entries(make_block_table(p, 1)),
              ElementsAre(0, 1, 2, 3, kNone, kNone,                  //
                          0, 1, kNone, kNone, kNone, kNone,          //
                          kNone, kNone, kNone, kNone, kNone, kNone,  //
                          0, 1, 4, 5, 6, kNone));
  p.shared_prefix = 100;
  EXPECT_THAT(entries(make_block_table(p, 1)),
              ElementsAre(0, 1, 2, 4, kNone, kNone,                  //
                          0, 1, kNone, kNone, kNone, kNone,          //
                          kNone, kNone, kNone, kNone, kNone, kNone,  //
                          0, 1, 2, 3, 5, kNone));
}

TEST(PageOrder, ATableThatIsGivenIsTaken) {
  Problem p = paged(PageOrder::shuffled);
  BlockTable given = make_block_table(paged(PageOrder::reversed), 1);
  given.at(1, 3) = 12345;  // behind the end
  p.block_table = std::make_shared<const BlockTable>(given);
  given.at(1, 3) = kNone;
  EXPECT_EQ(make_block_table(p, 1), given);
}

// ---- what is in the pages

std::vector<float> rows(const ConstTensorView& t, const Problem& p) {
  std::vector<float> values;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t row = 0; row < p.kv_len_of(b); ++row) {
      for (int64_t h = 0; h < t.heads; ++h) {
        for (int64_t c = 0; c < t.head_dim; ++c) {
          values.push_back(load_element(t.data, t.dtype, t.offset(b, h, row) + c));
        }
      }
    }
  }
  return values;
}

TEST(PagedInputs, AreThoseOfTheSameProblemWithoutPages) {
  ThreadPool pool(2);
  for (const Distribution distribution :
       {Distribution::normal, Distribution::outliers, Distribution::one_hot}) {
    for (const Layout layout : kLayouts) {
      Problem contiguous = paged(PageOrder::shuffled, layout);
      contiguous.page_size = std::nullopt;
      const HostTensors expected(contiguous, {.distribution = distribution}, pool);
      const std::vector<float> k = rows(expected.inputs().k, contiguous);
      const std::vector<float> v = rows(expected.inputs().v, contiguous);
      for (const PageOrder order : kPageOrders) {
        for (const KvLayout kv_layout : kKvLayouts) {
          for (const int64_t page_size : {1, 3, 64}) {
            Problem p = paged(order, layout);
            p.kv_layout = kv_layout;
            p.page_size = page_size;
            const HostTensors tensors(p, {.distribution = distribution}, pool);
            EXPECT_EQ(rows(tensors.inputs().k, p), k);
            EXPECT_EQ(rows(tensors.inputs().v, p), v);
          }
        }
      }
    }
  }
}

// Everything in the pool that is no key of a request is NaN, in K and V both.
TEST(PagedInputs, ArePoisonBehindTheEndsAndInUnusedPages) {
  ThreadPool pool(2);
  for (const Dtype dtype : kUnscaledDtypes) {
    for (const KvLayout layout : kKvLayouts) {
      Problem p = paged(PageOrder::shuffled);
      p.dtype = dtype;
      p.kv_layout = layout;
      const HostTensors tensors(p, {}, pool);
      for (const ConstTensorView& t : {tensors.inputs().k, tensors.inputs().v}) {
        int64_t finite = 0;
        for (int64_t i = 0; i < p.key_elements(); ++i) {
          finite += std::isnan(load_element(t.data, t.dtype, i)) ? 0 : 1;
        }
        EXPECT_EQ(p.key_elements(), 14 * 2 * 2 * 8);
        EXPECT_EQ(finite, 20 * 2 * 8);
      }
    }
  }
}

TEST(PagedInputs, SharedPagesHoldWhatTheFirstRequestHas) {
  ThreadPool pool(2);
  Problem p = paged(PageOrder::shuffled);
  p.shared_prefix = 4;
  const HostTensors tensors(p, {}, pool);
  const ConstTensorView k = tensors.inputs().k;
  const auto at = [&](int64_t b, int64_t row) {
    return load_element(k.data, k.dtype, k.offset(b, 1, row));
  };
  Problem contiguous = p;
  contiguous.page_size = contiguous.shared_prefix = std::nullopt;
  const HostTensors alone(contiguous, {}, pool);
  const ConstTensorView own = alone.inputs().k;
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(at(1, row), at(0, row));
    EXPECT_EQ(at(3, row), load_element(own.data, own.dtype, own.offset(0, 1, row)));
  }
  EXPECT_EQ(at(3, 5), load_element(own.data, own.dtype, own.offset(3, 1, 5)));
  EXPECT_NE(at(3, 5), at(0, 5));
}

// A page of which the second request has more rows.
TEST(PagedInputs, ASharedPageHasTheRowsOfTheLongestRequest) {
  ThreadPool pool(1);
  Problem p{.q_heads = 1, .kv_heads = 1, .head_dim = 8};
  p.set_lengths(std::make_shared<const Lengths>(std::vector<RequestLengths>{{1, 2}, {1, 5}}));
  p.page_size = 8;
  BlockTable table(2, 1, 2);
  table.at(0, 0) = table.at(1, 0) = 1;
  p.block_table = std::make_shared<const BlockTable>(table);
  const HostTensors tensors(p, {}, pool);
  for (const float value : rows(tensors.inputs().k, p)) EXPECT_FALSE(std::isnan(value));
}

class PagedOnADevice : public testing::TestWithParam<Placement> {};

TEST_P(PagedOnADevice, HasTheTableInItsMemory) {
  const auto device = make_host_device(1);
  for (const KvLayout layout : kKvLayouts) {
    Problem p = paged(PageOrder::shuffled);
    p.kv_layout = layout;
    const HostTensors host(p, {}, *device->stream().threads);
    DeviceInputs inputs(*device, p, GetParam(), host.inputs());
    const Inputs view = inputs.view();
    EXPECT_EQ(rows(view.k, p), rows(host.inputs().k, p));
    EXPECT_EQ(rows(view.v, p), rows(host.inputs().v, p));
    EXPECT_NE(view.k.pages.table, host.inputs().k.pages.table);
    EXPECT_EQ(view.k.pages.table, view.v.pages.table);
    EXPECT_EQ(view.k.pages.stride > 6, GetParam() == Placement::strided);
    EXPECT_EQ(view.k.pages.table[view.k.pages.stride * 3 + 5], kNone);

    // A change to the table or behind it is a change of the inputs.
    const uint64_t hash = inputs.hash();
    for (const int64_t entry : {int64_t{0}, view.k.pages.stride * 4}) {
      auto& at = const_cast<int32_t*>(view.k.pages.table)[entry];
      const int32_t before = at;
      at = 1;
      EXPECT_NE(inputs.hash(), hash);
      at = before;
      EXPECT_EQ(inputs.hash(), hash);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PagedOnADevice, testing::ValuesIn(kPlacements),
                         [](const auto& instance) { return std::string(name(instance.param)); });

}  // namespace
}  // namespace flashbench
