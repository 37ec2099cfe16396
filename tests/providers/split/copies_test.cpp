#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "providers/split/rank.h"

namespace flashbench {
namespace {

using testing::SizeIs;

// A tensor in memory of its own, in which no two bytes beside each other are the same.
struct Tensor {
  Tensor(Layout layout, int64_t batch, int64_t heads, int64_t length, int64_t gap, int first)
      : bytes(1 << 16) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(first + i % 251);
    view =
        dense_view(static_cast<void*>(bytes.data()), Dtype::bf16, layout, batch, heads, length, 8);
    if (gap == 0) return;
    if (layout == Layout::bshd) {
      view.head_stride += gap;
      view.row_stride = heads * view.head_stride + gap;
      view.batch_stride = length * view.row_stride + gap;
    } else {
      view.row_stride += gap;
      view.head_stride = length * view.row_stride + gap;
      view.batch_stride = heads * view.head_stride + gap;
    }
  }
  std::vector<std::byte> bytes;
  TensorView view;
};

void make(const std::vector<RowCopy>& copies) {
  for (const RowCopy& copy : copies) {
    for (size_t row = 0; row < copy.height; ++row) {
      std::memcpy(static_cast<std::byte*>(copy.to) + row * copy.to_pitch,
                  static_cast<const std::byte*>(copy.from) + row * copy.from_pitch, copy.width);
    }
  }
}

const std::byte* row_at(const TensorView& t, int64_t b, int64_t h, int64_t row) {
  return static_cast<const std::byte*>(t.data) + t.offset(b, h, row) * 2;
}

// Whatever the strides, each row arrives, and nothing else is written.
TEST(CopiesOf, MoveEachRowAndNothingElse) {
  for (const Layout from_layout : kDenseLayouts) {
    for (const Layout to_layout : kDenseLayouts) {
      for (const int64_t gap : {0, 8}) {
        for (const int64_t batch : {1, 2}) {
          for (const RowRange rows : {RowRange{0, 5}, RowRange{2, 3}, RowRange{1, 4}}) {
            for (const int64_t heads : {1, 2, 3}) {
              Tensor from(from_layout, batch, 3, 5, gap, 0), to(to_layout, batch, heads, 6, gap, 7);
              const TensorView source = heads_of(rows_of(from.view, rows), {3 - heads, 3});
              const TensorView target = rows_of(to.view, {0, rows.size()});
              std::vector<std::byte> expected = to.bytes;
              int64_t bytes = 0;
              for (int64_t b = 0; b < batch; ++b) {
                for (int64_t h = 0; h < heads; ++h) {
                  for (int64_t row = 0; row < rows.size(); ++row) {
                    const auto at = row_at(target, b, h, row) - to.bytes.data();
                    std::memcpy(expected.data() + at, row_at(source, b, h, row), 16);
                    bytes += 16;
                  }
                }
              }
              const std::vector<RowCopy> copies = copies_of(source, target);
              make(copies);
              EXPECT_EQ(to.bytes, expected);
              for (const RowCopy& copy : copies) bytes -= copy.bytes();
              EXPECT_EQ(bytes, 0);
            }
          }
        }
      }
    }
  }
}

TEST(CopiesOf, NoRowsAreNoCopies) {
  Tensor from(Layout::bshd, 2, 3, 5, 0, 0), to(Layout::bshd, 2, 3, 5, 0, 7);
  EXPECT_THAT(copies_of(rows_of(from.view, {2, 2}), rows_of(to.view, {0, 0})), SizeIs(0));
}

// Few copies, and wide ones: copy engines take them one after the other.
TEST(CopiesOf, AreAsFewAsTheStridesAllow) {
  const auto copies = [](Layout layout, int64_t batch, int64_t heads, RowRange rows) {
    static Tensor from(Layout::bshd, 1, 1, 1, 0, 0), to(Layout::bshd, 1, 1, 1, 0, 0);
    from = Tensor(layout, batch, 4, 16, 0, 0);
    to = Tensor(layout, batch, heads, 16, 0, 0);
    return copies_of(heads_of(rows_of(from.view, rows), {0, heads}), rows_of(to.view, rows));
  };
  // A chunk of all heads is one piece, or one of each head at equal distances.
  ASSERT_THAT(copies(Layout::bshd, 1, 4, {4, 8}), SizeIs(1));
  EXPECT_EQ(copies(Layout::bshd, 1, 4, {4, 8})[0].height, 1u);
  EXPECT_EQ(copies(Layout::bshd, 1, 4, {4, 8})[0].width, 4u * 4 * 16);
  ASSERT_THAT(copies(Layout::bhsd, 1, 4, {4, 8}), SizeIs(1));
  EXPECT_EQ(copies(Layout::bhsd, 1, 4, {4, 8})[0].height, 4u);
  EXPECT_EQ(copies(Layout::bhsd, 1, 4, {4, 8})[0].width, 4u * 16);
  // Batches of one layout lie at equal distances, too; with heads apart there is a copy for each.
  EXPECT_THAT(copies(Layout::bshd, 3, 4, {4, 8}), SizeIs(1));
  EXPECT_THAT(copies(Layout::bhsd, 3, 4, {4, 8}), SizeIs(3));
  // A part of the heads: rows of them.
  ASSERT_THAT(copies(Layout::bshd, 1, 2, {4, 8}), SizeIs(1));
  EXPECT_EQ(copies(Layout::bshd, 1, 2, {4, 8})[0].height, 4u);
  EXPECT_EQ(copies(Layout::bshd, 1, 2, {4, 8})[0].width, 2u * 16);
  // Everything is one piece.
  EXPECT_EQ(copies(Layout::bhsd, 3, 4, {0, 16})[0].height, 1u);
}

}  // namespace
}  // namespace flashbench
