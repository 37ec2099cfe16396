#include "inputs/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/e4m3.h"
#include "device/device.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"

namespace flashbench {
namespace {

constexpr float kInfiniteFloat = std::numeric_limits<float>::infinity();

Problem scaled(Descale descale) {
  return {.dtype = Dtype::e4m3,
          .batch = 2,
          .q_heads = 4,
          .kv_heads = 2,
          .q_len = 130,
          .kv_len = 300,
          .head_dim = 24,
          .descale = descale};
}

TEST(Quantize, FactorOfTheLargestMagnitude) {
  EXPECT_EQ(descale_of(448, kMostE4m3), 1);
  EXPECT_EQ(descale_of(7, kMostE4m3), 7.0f / 448);
  EXPECT_EQ(descale_of(0, kMostE4m3), 1);
  EXPECT_TRUE(std::isnan(descale_of(kInfiniteFloat, kMostE4m3)));
  EXPECT_GT(descale_of(std::numeric_limits<float>::denorm_min(), kMostE4m3), 0);
}

TEST(Quantize, ExactFactorIsTheNextPowerOfTwo) {
  EXPECT_EQ(exact_descale_of(448, kMostE4m3), 1);
  EXPECT_EQ(exact_descale_of(449, kMostE4m3), 2);
  EXPECT_EQ(exact_descale_of(225, kMostE4m3), 1);
  EXPECT_EQ(exact_descale_of(224, kMostE4m3), 0.5f);
  EXPECT_EQ(exact_descale_of(0, kMostE4m3), 1);
  EXPECT_TRUE(std::isnan(exact_descale_of(kInfiniteFloat, kMostE4m3)));
}

// The factors of a problem, and the values of those rows that share one, from the definition.
TEST(Quantize, RoundsEachElementOverItsOwnFactor) {
  ThreadPool pool(2);
  for (const Descale descale : kDescales) {
    const Problem p = scaled(descale);
    const InputSpec spec{.distribution = Distribution::outliers, .seed = 3};
    const HostTensors tensors(p, spec, pool);
    Problem wide = p;
    wide.dtype = Dtype::fp32;
    wide.descale = Descale::per_head;
    const HostTensors values(wide, spec, pool);
    const Inputs found = tensors.inputs(), exact = values.inputs();
    for (const auto& both : {std::pair{found.q, exact.q}, {found.k, exact.k}, {found.v, exact.v}}) {
      const ConstTensorView &bytes = both.first, &value = both.second;  // which lambdas can capture
      const auto at = [&](int64_t b, int64_t h, int64_t row, int64_t column) {
        return static_cast<const float*>(value.data)[value.offset(b, h, row) + column];
      };
      const auto shares = [&](int64_t b, int64_t h, int64_t row, int64_t b2, int64_t h2,
                              int64_t row2) {
        if (descale == Descale::per_tensor) return true;
        if (b != b2 || h != h2) return false;
        return descale == Descale::per_head || row / 128 == row2 / 128;
      };
      const auto amax_beside = [&](int64_t b, int64_t h, int64_t row) {
        float amax = 0;
        for (int64_t b2 = 0; b2 < bytes.batch; ++b2) {
          for (int64_t h2 = 0; h2 < bytes.heads; ++h2) {
            for (int64_t row2 = 0; row2 < bytes.length; ++row2) {
              if (!shares(b, h, row, b2, h2, row2)) continue;
              for (int64_t c = 0; c < bytes.head_dim; ++c) {
                amax = std::max(amax, std::abs(at(b2, h2, row2, c)));
              }
            }
          }
        }
        return amax;
      };
      for (int64_t b = 0; b < bytes.batch; ++b) {
        for (int64_t h = 0; h < bytes.heads; ++h) {
          for (int64_t row = 0; row < bytes.length; row += 43) {
            const float factor = bytes.descales.at(b, h, row);
            ASSERT_EQ(factor, amax_beside(b, h, row) / 448) << name(descale);
            for (int64_t c = 0; c < bytes.head_dim; ++c) {
              const uint8_t byte =
                  static_cast<const uint8_t*>(bytes.data)[bytes.offset(b, h, row) + c];
              ASSERT_EQ(byte, float_to_e4m3(at(b, h, row, c) / factor));
            }
          }
        }
      }
    }
  }
}

TEST(Quantize, NanStaysAndInfinitySpoilsItsFactor) {
  ThreadPool pool(1);
  const Problem p{.dtype = Dtype::e4m3, .q_heads = 2, .kv_heads = 2, .q_len = 1, .head_dim = 8};
  std::vector<uint8_t> bytes(16);
  std::vector<float> descales(2);
  TensorView to = query_view<void>(bytes.data(), p);
  to.descales = query_descales_view(descales.data(), p);
  quantize(
      [](int64_t, int64_t h, int64_t, float* row) {
        std::fill_n(row, 8, 2.0f);
        row[3] = h == 0 ? std::numeric_limits<float>::quiet_NaN() : kInfiniteFloat;
      },
      ByteFormat::e4m3, to, descales.data(), pool);
  EXPECT_EQ(descales[0], 2.0f / 448);
  EXPECT_TRUE(std::isnan(descales[1]));
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(bytes[i] & 0x7f, i == 3 ? 0x7f : 0x7e);
}

// A provider finds the same bytes and factors in device memory, in every placement.
TEST(Quantize, FactorsAreOnTheDevice) {
  const auto device = make_host_device(1);
  for (const Descale descale : kDescales) {
    for (const Placement placement : kPlacements) {
      const Problem p = scaled(descale);
      const HostTensors host(p, {}, *device->stream().threads);
      const Inputs expected = host.inputs();
      const DeviceInputs placed(*device, p, placement, expected);
      const Inputs found = placed.view();
      EXPECT_NE(found.k.descales.data, expected.k.descales.data);
      for (const auto& [there, here] :
           {std::pair{found.q, expected.q}, {found.k, expected.k}, {found.v, expected.v}}) {
        for (int64_t b = 0; b < p.batch; ++b) {
          for (int64_t h = 0; h < there.heads; ++h) {
            for (int64_t row = 0; row < there.length; row += 43) {
              ASSERT_EQ(there.descales.at(b, h, row), here.descales.at(b, h, row));
              ASSERT_EQ(request_view(there, b, there.length).descales.at(0, h, row),
                        here.descales.at(b, h, row));
              ASSERT_EQ(static_cast<const uint8_t*>(there.data)[there.offset(b, h, row)],
                        static_cast<const uint8_t*>(here.data)[here.offset(b, h, row)]);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace flashbench
