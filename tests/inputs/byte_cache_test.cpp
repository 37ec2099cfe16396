// A K/V cache of bytes: each element over the factor of its head in all requests, wherever it lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "attention/e4m3.h"
#include "attention/half.h"
#include "inputs/inputs.h"

namespace flashbench {
namespace {

Problem cache(Layout layout, std::optional<int64_t> page_size, Descale descale) {
  Problem p{.dtype = Dtype::bf16,
            .layout = layout,
            .batch = 3,
            .q_heads = 4,
            .kv_heads = 2,
            .q_len = 2,
            .kv_len = 50,
            .head_dim = 24,
            .descale = descale};
  p.kv_dtype = Dtype::e4m3;
  p.page_size = page_size;
  if (layout == Layout::ragged) {
    p.set_lengths(
        std::make_shared<const Lengths>(std::vector<RequestLengths>{{2, 50}, {1, 33}, {1, 1}}));
  }
  return p;
}

void expect_rounded(const Problem& p, const ConstTensorView& bytes, const ConstTensorView& wide) {
  const auto value = [&](int64_t b, int64_t h, int64_t row, int64_t c) {
    return load_element(wide.data, wide.dtype, wide.offset(b, h, row) + c);
  };
  std::vector<float> amax(static_cast<size_t>(bytes.heads), 0);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < bytes.heads; ++h) {
      float& largest = amax[p.descale == Descale::per_tensor ? 0 : static_cast<size_t>(h)];
      for (int64_t row = 0; row < p.kv_len_of(b); ++row) {
        for (int64_t c = 0; c < bytes.head_dim; ++c) {
          largest = std::max(largest, std::abs(value(b, h, row, c)));
        }
      }
    }
  }
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < bytes.heads; ++h) {
      const float factor = bytes.descales.at(b, h, 0);
      ASSERT_EQ(factor, amax[p.descale == Descale::per_tensor ? 0 : static_cast<size_t>(h)] / 448);
      for (int64_t row = 0; row < p.kv_len_of(b); ++row) {
        for (int64_t c = 0; c < bytes.head_dim; ++c) {
          const uint8_t byte = static_cast<const uint8_t*>(bytes.data)[bytes.offset(b, h, row) + c];
          ASSERT_EQ(byte, float_to_e4m3(value(b, h, row, c) / factor)) << b << h << row << c;
        }
      }
    }
  }
}

TEST(ByteCache, HasTheValuesOfItsProblemInQsDtype) {
  ThreadPool pool(2);
  for (const Layout layout : kLayouts) {
    for (const std::optional<int64_t>& page_size : {std::optional<int64_t>(), {16}, {1}}) {
      for (const Descale descale : {Descale::per_head, Descale::per_tensor}) {
        const Problem p = cache(layout, page_size, descale);
        ASSERT_EQ(p.invalid(), std::nullopt);
        const InputSpec spec{.distribution = Distribution::outliers, .seed = 5};
        const HostTensors tensors(p, spec, pool), wide(p.without_kv_dtype(), spec, pool);
        const Inputs found = tensors.inputs(), exact = wide.inputs();
        EXPECT_EQ(found.q.dtype, Dtype::bf16);
        EXPECT_EQ(found.q.descales.data, nullptr);
        expect_rounded(p, found.k, exact.k);
        expect_rounded(p, found.v, exact.v);
        const Inputs before = tensors.before_rounding().value();
        for (const auto& [one, other] : {std::pair{before.k, exact.k}, {before.v, exact.v}}) {
          ASSERT_EQ(load_element(one.data, one.dtype, one.offset(2, 1, 0)),
                    load_element(other.data, other.dtype, other.offset(2, 1, 0)));
        }
      }
    }
  }
}

// Unused pages, and rows behind a request's last, are NaN and in no factor.
TEST(ByteCache, IsNanBesideItsRows) {
  ThreadPool pool(1);
  const Problem p = cache(Layout::ragged, 16, Descale::per_head);
  const HostTensors tensors(p, {}, pool);
  const Inputs in = tensors.inputs();
  const auto* bytes = static_cast<const uint8_t*>(in.k.data);
  const int64_t nans = std::count_if(bytes, bytes + p.key_elements(),
                                     [](uint8_t byte) { return (byte & 0x7f) == 0x7f; });
  EXPECT_EQ(nans, p.key_elements() - p.kv_heads * p.kv_tokens() * p.head_dim);
  EXPECT_EQ(bytes[in.k.offset(1, 0, 32) + 8 * p.kv_heads * 24] & 0x7f, 0x7f);
}

TEST(ByteCache, OfPatternsHasNothingBeforeRounding) {
  ThreadPool pool(1);
  const HostTensors tensors(cache(Layout::bshd, {}, Descale::per_head),
                            {.distribution = Distribution::one_hot}, pool);
  EXPECT_FALSE(tensors.before_rounding());
}

}  // namespace
}  // namespace flashbench
