#include "device/page_owners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Whose byte each is of a tensor whose allocation has `bytes` bytes; -1: nobody's.
std::vector<int> owners(const std::vector<OwnedBytes>& owned, size_t bytes) {
  std::vector<int> of(bytes, -1);
  for (const OwnedBytes& part : owned) {
    for (size_t at = part.first; at < part.end; ++at) {
      EXPECT_EQ(of[at], -1) << "two ranks have byte " << at;
      of[at] = part.rank;
    }
  }
  return of;
}

// Every element of a row is the owner's of its token, in any layout and with any gaps.
TEST(OwnedBytes, FollowTheTokens) {
  for (const Layout layout : kDenseLayouts) {
    for (const Split split : {Split::zigzag, Split::contiguous}) {
      for (const int ranks : {2, 3}) {
        for (const int64_t length : {1, 5, 12, 13}) {
          for (const int64_t gap : {0, 3}) {
            ConstTensorView t =
                dense_view(static_cast<const void*>(nullptr), Dtype::bf16, layout, 2, 3, length, 8);
            if (gap > 0 && layout == Layout::bshd) {
              t.head_stride += gap;
              t.row_stride = 3 * t.head_stride + gap;
              t.batch_stride = length * t.row_stride + gap;
            } else if (gap > 0) {
              t.row_stride += gap;
              t.head_stride = length * t.row_stride + gap;
              t.batch_stride = 3 * t.head_stride + gap;
            }
            const TokenSplit tokens{split, length, ranks};
            constexpr size_t kBegin = 10;
            const auto of = owners(owned_bytes(t, kBegin, owned_rows(tokens)),
                                   kBegin + static_cast<size_t>(2 * t.batch_stride * 2));
            for (int chunk = 0; chunk < tokens.chunks(); ++chunk) {
              for (int64_t row = tokens.chunk(chunk).first; row < tokens.chunk(chunk).end; ++row) {
                for (int64_t b = 0; b < 2; ++b) {
                  for (int64_t h = 0; h < 3; ++h) {
                    for (int64_t i = 0; i < 8; ++i) {
                      const auto at = kBegin + static_cast<size_t>(2 * (t.offset(b, h, row) + i));
                      ASSERT_EQ(of[at], tokens.owner(chunk)) << b << " " << h << " " << row;
                      ASSERT_EQ(of[at + 1], tokens.owner(chunk));
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

// Of each request, a rank has its part of the keys, however few they are.
TEST(OwnedBytes, FollowTheKeys) {
  for (const Layout layout : kDenseLayouts) {
    for (const Mask mask : kMasks) {
      for (const int64_t kv_len : {1, 2, 5, 64}) {
        Problem p{.mask = mask, .layout = layout, .batch = 2, .q_heads = 3, .kv_heads = 3};
        p.q_len = 4;
        p.kv_len = kv_len;
        p.head_dim = 8;
        p.gpus = 3;
        p.split = Split::keys;
        const ConstTensorView k = key_view(static_cast<const void*>(nullptr), p);
        const KeySplit split = KeySplit::of(p);
        const auto row_bytes = static_cast<size_t>(8 * element_size(p.dtype));
        const auto of = owners(owned_bytes(k, 0, owned_rows(split)),
                               static_cast<size_t>(2 * 3 * kv_len) * row_bytes);
        for (int rank = 0; rank < 3; ++rank) {
          const RowRange keys = split.keys(rank);
          for (int64_t row = keys.first; row < keys.end; ++row) {
            for (int64_t b = 0; b < 2; ++b) {
              for (int64_t h = 0; h < 3; ++h) {
                const auto at = static_cast<size_t>(k.offset(b, h, row) * element_size(p.dtype));
                ASSERT_EQ(of[at], rank) << p.id() << " " << b << " " << h << " " << row;
                ASSERT_EQ(of[at + row_bytes - 1], rank);
              }
            }
          }
        }
      }
    }
  }
}

TEST(PagesByOwner, ArePutWhereMostOfTheirBytesBelong) {
  const std::vector<OwnedBytes> owned{{5, 18, 0}, {18, 40, 1}, {60, 71, 0}};
  // Pages of 10 bytes: 0 and 1 are rank 0's but for two bytes, 5 nobody's, 7 one byte of rank 0.
  EXPECT_THAT(pages_by_owner(80, 10, owned),
              ElementsAre(OwnedPages{0, 2, 0}, OwnedPages{2, 4, 1}, OwnedPages{6, 2, 0}));
}

TEST(PagesByOwner, ATieIsTheLowestRanks) {
  EXPECT_THAT(pages_by_owner(10, 10, {{0, 5, 1}, {5, 10, 0}}), ElementsAre(OwnedPages{0, 1, 0}));
}

TEST(PagesByOwner, NobodysPagesAreTheFirstRanks) {
  EXPECT_THAT(pages_by_owner(25, 10, {}), ElementsAre(OwnedPages{0, 3, 0}));
  EXPECT_THAT(pages_by_owner(0, 10, {}), IsEmpty());
}

// All pages, each once, in order.
TEST(PagesByOwner, CoverTheAllocation) {
  const ConstTensorView t =
      dense_view(static_cast<const void*>(nullptr), Dtype::bf16, Layout::bhsd, 2, 4, 1000, 64);
  const TokenSplit tokens{Split::zigzag, 1000, 4};
  const size_t bytes = 256 + static_cast<size_t>(2 * 4 * 1000 * 64 * 2) + 256;
  for (const size_t page : {size_t{1024}, size_t{4096}, size_t{2} << 20}) {
    size_t next = 0;
    for (const OwnedPages& run :
         pages_by_owner(bytes, page, owned_bytes(t, 256, owned_rows(tokens)))) {
      EXPECT_EQ(run.first, next);
      EXPECT_GT(run.count, 0u);
      next += run.count;
    }
    EXPECT_EQ(next, (bytes + page - 1) / page);
  }
}

// With chunks of many pages a rank has its share, but for the pages at the borders.
TEST(PagesByOwner, GiveEachRankItsShare) {
  const int64_t length = 8192;
  const ConstTensorView t =
      dense_view(static_cast<const void*>(nullptr), Dtype::bf16, Layout::bshd, 1, 4, length, 64);
  const size_t bytes = static_cast<size_t>(length * 4 * 64 * 2), page = 4096;
  std::vector<size_t> pages(4);
  for (const OwnedPages& run :
       pages_by_owner(256 + bytes, page,
                      owned_bytes(t, 256, owned_rows(TokenSplit{Split::zigzag, length, 4})))) {
    pages[static_cast<size_t>(run.rank)] += run.count;
  }
  for (const size_t count : pages) {
    EXPECT_NEAR(static_cast<double>(count), static_cast<double>(bytes / page / 4), 2);
  }
}

// A cache whose parts are whole pages has no page of two ranks.
TEST(PagesByOwner, DivideACacheByItsKeys) {
  Problem p{.dtype = Dtype::bf16, .batch = 2, .kv_heads = 8};
  p.kv_len = 32768;
  p.head_dim = 128;
  p.gpus = 2;
  p.split = Split::keys;
  const ConstTensorView k = key_view(static_cast<const void*>(nullptr), p);
  const size_t pages = 32;  // of a request: 64 MiB
  const size_t begin = kSharedPageBytes, bytes = begin + 2 * pages * kSharedPageBytes;
  EXPECT_THAT(
      pages_by_owner(bytes, kSharedPageBytes, owned_bytes(k, begin, owned_rows(KeySplit::of(p)))),
      ElementsAre(OwnedPages{0, 1 + pages / 2, 0}, OwnedPages{1 + pages / 2, pages / 2, 1},
                  OwnedPages{1 + pages, pages / 2, 0},
                  OwnedPages{1 + pages + pages / 2, pages / 2, 1}));
}

}  // namespace
}  // namespace flashbench
