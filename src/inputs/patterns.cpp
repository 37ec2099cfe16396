#include "inputs/patterns.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "attention/e4m3.h"
#include "attention/half.h"
#include "inputs/quantize.h"
#include "inputs/random_value.h"

namespace flashbench {

namespace {

constexpr int kQ = 0, kK = 1, kV = 2;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- one_hot

// exp(-128) is 0 in fp32, and far below an ulp of 1 in any format with fewer exponent bits.
constexpr double kMargin = 128;

// Q and K are +-amplitude: each column holds one bit of the key's number, repeated over the
// columns.
struct OneHotBits {
  int64_t bits = 1;
  float q_amplitude = 1, k_amplitude = 1;
  bool exact = false;
};

OneHotBits one_hot_bits(const Problem& p) {
  OneHotBits code;
  code.bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(p.kv_len - 1))));
  const double scale = std::abs(p.softmax_scale());
  const int64_t repeats = p.head_dim / code.bits;
  if (repeats == 0 || scale == 0) return code;
  constexpr int kMaxExponent = 28;  // 2^14 in each of Q and K, far from fp16's largest
  const double amplitude = kMargin / (2 * static_cast<double>(repeats) * scale);
  const int exponent = std::max(0, static_cast<int>(std::ceil(std::log2(amplitude))));
  if (exponent > kMaxExponent) return code;
  code.q_amplitude = std::ldexp(1.0f, exponent - exponent / 2);
  code.k_amplitude = std::ldexp(1.0f, exponent / 2);
  if (p.softmax_scale() < 0) code.q_amplitude = -code.q_amplitude;
  code.exact = true;
  return code;
}

float one_hot_bit(const OneHotBits& code, int64_t key, int64_t column, float amplitude) {
  return (key >> (column % code.bits) & 1) != 0 ? amplitude : -amplitude;
}

constexpr std::array kDigits{2, 2, 3};  // of batch, head and row
constexpr int64_t kGroup = 8;           // columns: the digits, and one more

// The digits that V spells numbers with: each is a value that the dtype holds exactly.
struct Digits {
  int64_t radix;
  float (*value)(int64_t digit);
  std::optional<int64_t> (*digit)(float value);
};

constexpr int64_t kIntegers = 512;
constexpr Digits kIntegerDigits{
    .radix = kIntegers,
    .value = [](int64_t digit) { return static_cast<float>(digit - kIntegers / 2); },
    .digit = [](float value) -> std::optional<int64_t> {
      const float digit = value + static_cast<float>(kIntegers / 2);
      if (!(digit >= 0 && digit < static_cast<float>(kIntegers)) || digit != std::floor(digit)) {
        return std::nullopt;
      }
      return static_cast<int64_t>(digit);
    }};

// Every finite number of e4m3, in order; -0 is 0.
constexpr int64_t kMostByte = 126;
constexpr Digits kByteDigits{
    .radix = 2 * kMostByte + 1,
    .value =
        [](int64_t digit) {
          const float magnitude = e4m3_to_float(static_cast<uint8_t>(std::abs(digit - kMostByte)));
          return digit < kMostByte ? -magnitude : magnitude;
        },
    .digit = [](float value) -> std::optional<int64_t> {
      const uint8_t byte = float_to_e4m3(std::abs(value));
      if (e4m3_to_float(byte) != std::abs(value)) return std::nullopt;
      return value < 0 ? kMostByte - byte : kMostByte + byte;
    }};

int64_t power(int64_t base, int64_t exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

const Digits& digits_of(Dtype dtype) {
  return dtype == Dtype::e4m3 ? kByteDigits : kIntegerDigits;
}

// ---- the others

constexpr double kScoreStep = 0.05;   // late_maximum
constexpr double kLowScore = -120.0;  // low_logsumexp: below -88.7, where exp(-L) overflows in fp32
constexpr float kLowNoise = 1.0f / 16;
constexpr float kHuge = 256;  // huge_scores: 8 columns of 256^2 are 2^19
constexpr int64_t kHugeColumns = 8, kHugeSteps = 5;
constexpr int64_t kHugeStepOfBytes = 16;     // between the numbers of e4m3 below 256
constexpr float kSubnormalDescale = 0x1p9f;  // whose integers up to 7 are bytes up to 7

struct Element {
  const Problem& p;  // of the request
  bool last_request;
  uint64_t seed;
  int tensor;
  int64_t head, row, column;
  uint64_t index;

  float normal() const { return random_value(Distribution::normal, seed, tensor, index); }
  // In [-most, most].
  float integer(int64_t most) const {
    const float u = random_value(Distribution::uniform, seed, tensor, index);
    return std::round(u * static_cast<float>(most));
  }
  // Behind a window V is as stale as K is.
  bool unseen() const {
    return (tensor == kK || (tensor == kV && p.has_window())) && !p.seen_keys().contains(row);
  }
  bool spoilt() const {
    return tensor == kK && last_request && head == p.kv_heads - 1 && row == spoilt_key(p);
  }
};

float equal_scores(const Element& e) {
  switch (e.tensor) {
    case kQ:
      return e.integer(2);
    case kK:
      return static_cast<float>(e.column % 5 - 2);
    case kV:
      return e.integer(8);
    default:
      return e.normal();
  }
}

float late_maximum(const Element& e) {
  if (e.column != 0 || e.tensor > kK) return e.normal();
  if (e.tensor == kQ) return 1;
  const double scale = e.p.softmax_scale();
  return scale == 0 ? e.normal()
                    : static_cast<float>(kScoreStep * static_cast<double>(e.row) / scale);
}

float low_logsumexp(const Element& e) {
  if (e.tensor == kK) return 1 + kLowNoise * e.normal();
  if (e.tensor != kQ) return e.normal();
  const double sum = e.p.softmax_scale() * static_cast<double>(e.p.head_dim);
  return sum == 0 ? e.normal() : static_cast<float>(kLowScore / sum);
}

float huge_scores(const Element& e) {
  if (e.tensor > kK) return e.normal();
  if (e.column >= kHugeColumns) return 0;
  if (e.tensor == kQ) return e.head % 2 == 0 ? -kHuge : kHuge;
  const int64_t step = e.p.has_scaled_keys() ? kHugeStepOfBytes : 1;
  return e.column == 0 ? kHuge - static_cast<float>(e.row % kHugeSteps * step) : kHuge;
}

float value(Distribution distribution, const Element& e) {
  switch (distribution) {
    case Distribution::equal_scores:
      return equal_scores(e);
    case Distribution::late_maximum:
      return late_maximum(e);
    case Distribution::low_logsumexp:
      return low_logsumexp(e);
    case Distribution::huge_scores:
      return huge_scores(e);
    case Distribution::nan_key:
      return e.spoilt() ? kNan : e.normal();
    case Distribution::inf_key:
      return e.spoilt() && e.column == 0 ? kInfinity : e.normal();
    case Distribution::nan_unseen:
      return e.unseen() ? kNan : e.normal();
    case Distribution::subnormals:
      return e.integer(e.tensor == kV ? 7 : 3);
    default:
      return e.normal();
  }
}

}  // namespace

bool is_pattern(Distribution distribution) {
  return distribution >= Distribution::equal_scores;
}

std::optional<int64_t> one_hot_key(const Problem& p, uint64_t seed, int64_t batch, int64_t head,
                                   int64_t row) {
  const RowRange visible = p.request(batch).visible_keys(row);
  if (visible.empty()) return std::nullopt;
  constexpr int kStream = 16;  // a stream of its own, apart from the tensors'
  const auto index = static_cast<uint64_t>((batch * p.q_heads + head) * p.q_len + row);
  const float u = random_value(Distribution::uniform, seed, kStream, index);  // [-1, 1)
  const auto place =
      static_cast<int64_t>((static_cast<double>(u) + 1) / 2 * static_cast<double>(visible.size()));
  return visible.first + std::min(place, visible.size() - 1);
}

bool one_hot_is_exact(const Problem& p) {
  return one_hot_bits(p).exact;
}

float pattern_descale(Distribution distribution, float amax) {
  return distribution == Distribution::subnormals ? kSubnormalDescale
                                                  : exact_descale_of(amax, kMostE4m3);
}

// Columns 0 to 6 are the digits, column 7 the number of the group of eight columns; but in the
// first group of bytes it is their largest.
float one_hot_value(Dtype dtype, int64_t batch, int64_t head, int64_t row, int64_t column) {
  const Digits& digits = digits_of(dtype);
  const std::array<int64_t, 3> numbers{batch, head, row};
  int64_t place = column % kGroup;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (place < kDigits[i]) {
      return digits.value(numbers[i] / power(digits.radix, place) % digits.radix);
    }
    place -= kDigits[i];
  }
  const int64_t group = column / kGroup;
  return dtype == Dtype::e4m3 && group == 0 ? kMostE4m3 : static_cast<float>(group + 1);
}

std::optional<OneHotSource> one_hot_source(Dtype dtype, const ConstTensorView& t, int64_t batch,
                                           int64_t head, int64_t row) {
  const Digits& digits = digits_of(dtype);
  std::array<int64_t, 3> numbers{};
  int64_t at = t.offset(batch, head, row);
  for (size_t i = 0; i < numbers.size(); ++i) {
    for (int place = 0; place < kDigits[i]; ++place) {
      const auto digit = digits.digit(load_element(t.data, t.dtype, at++));
      if (!digit) return std::nullopt;
      numbers[i] += *digit * power(digits.radix, place);
    }
  }
  return OneHotSource{numbers[0], numbers[1], numbers[2]};
}

int64_t spoilt_key(const Problem& request) {
  const RowRange seen = request.visible_keys(request.q_len - 1);
  return seen.first + seen.size() / 2;
}

void fill_pattern_row(const Problem& p, Distribution distribution, uint64_t seed, int tensor,
                      int64_t batch, int64_t head, int64_t row, uint64_t first_index,
                      const TensorView& to) {
  const int64_t at = to.offset(batch, head, row);
  const auto fill = [&](auto element) {
    for (int64_t column = 0; column < to.head_dim; ++column) {
      store_element(to.data, to.dtype, at + column, element(column));
    }
  };
  if (distribution == Distribution::one_hot && tensor <= kV) {
    if (tensor == kV) {
      return fill([&](int64_t c) { return one_hot_value(p.key_dtype(), batch, head, row, c); });
    }
    const OneHotBits code = one_hot_bits(p);
    const int64_t key = tensor == kK ? row : one_hot_key(p, seed, batch, head, row).value_or(0);
    const float amplitude = tensor == kK ? code.k_amplitude : code.q_amplitude;
    return fill([&](int64_t c) { return one_hot_bit(code, key, c, amplitude); });
  }
  const Problem request = p.request(batch);
  fill([&](int64_t c) {
    return value(distribution, {request, batch == p.batch - 1, seed, tensor, head, row, c,
                                first_index + static_cast<uint64_t>(c)});
  });
}

}  // namespace flashbench
