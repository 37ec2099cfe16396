// A kernel of 8-bit products step by step, as tensor cores and registers round: what its accuracy
// is, without the hardware. Tiles of keys go from the last to the first, with an online softmax.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "attention/accumulator.h"
#include "attention/e4m3.h"
#include "attention/half.h"
#include "inputs/rounded_inputs.h"
#include "providers/emulated_products.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

constexpr int64_t kQueries = 32;         // of a work item
constexpr int64_t kKeys = kDescaleRows;  // of a tile
constexpr int64_t kStep = Accumulator::kStepKeys;

using Rows = std::vector<float>;

float byte_at(const ConstTensorView& t, ByteFormat format, int64_t index) {
  return decode(format, static_cast<const uint8_t*>(t.data)[index]);
}

// Bytes of these rows, without factors: [rows, dim].
Rows load_rows(const ConstTensorView& t, int64_t b, int64_t h, RowRange range, ByteFormat format) {
  Rows rows(static_cast<size_t>(range.size() * t.head_dim));
  auto to = rows.begin();
  for (int64_t row = range.first; row < range.end; ++row) {
    const int64_t at = t.offset(b, h, row);
    for (int64_t c = 0; c < t.head_dim; ++c) *to++ = byte_at(t, format, at + c);
  }
  return rows;
}

// The same transposed: [dim, kKeys].
Rows load_columns(const ConstTensorView& t, int64_t b, int64_t h, RowRange range,
                  ByteFormat format) {
  Rows columns(static_cast<size_t>(t.head_dim * kKeys), 0.0f);
  for (int64_t row = range.first; row < range.end; ++row) {
    const int64_t at = t.offset(b, h, row);
    for (int64_t c = 0; c < t.head_dim; ++c) {
      columns[static_cast<size_t>(c * kKeys + row - range.first)] = byte_at(t, format, at + c);
    }
  }
  return columns;
}

// The state of a query row. The maximum is of scores times log2(e); O and the sum are in units of
// 2^p_exponent.
struct RowState {
  explicit RowState(int64_t value_dim)
      : o(static_cast<size_t>(value_dim), 0.0f), running(o.size(), 0.0f) {}

  Rows o;                    // in fp32, with the factors of V
  Rows running;              // in the tensor cores, without
  int64_t keys = 0;          // in `running`
  float running_factor = 0;  // of V, of those keys
  float maximum = -std::numeric_limits<float>::infinity();
  float sum = 0;

  // Moves what the tensor cores hold to fp32.
  void promote() {
    if (keys == 0) return;
    for (size_t c = 0; c < o.size(); ++c) {
      o[c] += running[c] * running_factor;
      running[c] = 0;
    }
    keys = 0;
  }

  void rescale(float by) {
    if (by == 1) return;
    sum *= by;
    for (size_t c = 0; c < o.size(); ++c) {
      o[c] *= by;
      running[c] *= by;
    }
  }
};

struct Tile {
  RowRange keys;
  Rows k;  // [head_dim, kKeys]
  Rows v;  // [keys, value_dim]
  float k_factor, v_factor;
};

class Emulator {
 public:
  Emulator(const Problem& p, const Accumulator& accumulator, const ByteInputs& in)
      : p_(p), accumulator_(accumulator), in_(in) {}

  // Computes these query rows of a head. shift(row) is added to their logsumexp.
  template <typename Shift>
  void attend(int64_t b, int64_t h, RowRange queries, const Outputs& out,
              const Shift& shift) const {
    const Rows q = load_rows(in_.q, b, h, queries, in_.qk_format);
    std::vector<RowState> rows(static_cast<size_t>(queries.size()), RowState(p_.value_dim()));
    const RowRange seen{p_.visible_keys(queries.first).first, p_.visible_keys(queries.end - 1).end};
    const int64_t kv_head = h / p_.heads_per_kv_head();
    for (int64_t first = (seen.end - 1) / kKeys * kKeys; !seen.empty() && first >= 0;
         first -= kKeys) {
      const RowRange keys{first, std::min(first + kKeys, p_.kv_len)};
      if (keys.end <= seen.first) break;
      const Tile tile{keys, load_columns(in_.k, b, kv_head, keys, in_.qk_format),
                      load_rows(in_.v, b, kv_head, keys, ByteFormat::e4m3),
                      in_.k.descales.at(b, kv_head, first), in_.v.descales.at(b, kv_head, first)};
      for (size_t i = 0; i < rows.size(); ++i) {
        const int64_t row = queries.first + static_cast<int64_t>(i);
        add_tile(rows[i], q.data() + static_cast<int64_t>(i) * p_.head_dim,
                 in_.q.descales.at(b, h, row), p_.visible_keys(row), tile);
      }
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t row = queries.first + static_cast<int64_t>(i);
      store(rows[i], b, h, row, shift(row), out);
    }
  }

 private:
  using Scores = std::array<float, static_cast<size_t>(kKeys)>;

  // Scores times log2(e).
  Scores scores_of(const float* q, float q_factor, const Tile& tile) const {
    Scores scores{};
    const auto add = in_.qk_format == ByteFormat::int8 ? add_exact : add_truncated;
    for (int64_t c = 0; c < p_.head_dim; c += kStep) {
      add(scores.data(), q + c, tile.k.data() + c * kKeys, std::min(kStep, p_.head_dim - c), kKeys,
          kKeys);
    }
    const float factor = q_factor * tile.k_factor * in_.score_factor *
                         static_cast<float>(p_.softmax_scale() * std::numbers::log2e);
    for (float& score : scores) score *= factor;
    return scores;
  }

  void add_tile(RowState& row, const float* q, float q_factor, RowRange visible,
                const Tile& tile) const {
    const int64_t first = std::max(visible.first, tile.keys.first) - tile.keys.first;
    const int64_t end = std::min(visible.end, tile.keys.end) - tile.keys.first;
    if (first >= end) return;
    Scores p = scores_of(q, q_factor, tile);
    float maximum = row.maximum;
    for (int64_t j = first; j < end; ++j) maximum = std::max(maximum, p[static_cast<size_t>(j)]);
    row.rescale(row.maximum == maximum ? 1 : std::exp2(row.maximum - maximum));
    row.maximum = maximum;
    for (int64_t j = 0; j < kKeys; ++j) {
      float& value = p[static_cast<size_t>(j)];
      if (j < first || j >= end) continue;
      value = std::exp2(value - maximum + static_cast<float>(accumulator_.p_exponent));
      row.sum += value;
      value = e4m3_to_float(float_to_e4m3(value));
    }
    if (row.running_factor != tile.v_factor) row.promote();
    row.running_factor = tile.v_factor;
    const int64_t every = accumulator_.promote_every;
    for (int64_t step = 0; step < tile.keys.size(); step += kStep) {
      const int64_t j = std::max(step, first);  // V of a key that is not visible may be NaN
      add_truncated(row.running.data(), p.data() + j, tile.v.data() + j * p_.value_dim(),
                    std::max<int64_t>(0, std::min(step + kStep, end) - j), p_.value_dim(),
                    p_.value_dim());
      row.keys += kStep;
      if (every != 0 && row.keys >= every) row.promote();
    }
  }

  void store(RowState& row, int64_t b, int64_t h, int64_t query, double shift,
             const Outputs& out) const {
    row.promote();
    const int64_t at = out.o.offset(b, h, query);
    const float factor = out.o.descales.data == nullptr ? 1 : *out.o.descales.data;
    for (size_t c = 0; c < row.o.size(); ++c) {
      store_element(out.o.data, out.o.dtype, at + static_cast<int64_t>(c),
                    row.sum == 0 ? 0 : row.o[c] / row.sum / factor);
    }
    const float logsumexp = (row.maximum - static_cast<float>(accumulator_.p_exponent)) *
                                static_cast<float>(std::numbers::ln2) +
                            std::log(row.sum);
    out.logsumexp[p_.query_index(b, h, query)] =
        row.sum == 0 ? -std::numeric_limits<float>::infinity()
                     : static_cast<float>(static_cast<double>(logsumexp) + shift);
  }

  const Problem& p_;
  const Accumulator& accumulator_;
  const ByteInputs& in_;
};

class EmulatedSession final : public Session {
 public:
  EmulatedSession(const Problem& p, const Accumulator& accumulator, Device& device)
      : p_(p), accumulator_(accumulator), pool_(*device.stream().threads) {
    if (p.quantize == Quantize::none) return;
    memory_ = device.allocate(RoundedInputs::memory_bytes(p), MemoryUse::workspace);
    rounded_.emplace(p, memory_.data());
  }

  void run(const Inputs& in, const Outputs& out) override {
    ByteInputs bytes{in.q, in.k, in.v};
    if (rounded_) {
      rounded_->round(in, pool_);
      bytes = rounded_->bytes();
    }
    const Emulator emulator(p_, accumulator_, bytes);
    const int64_t of_head = (p_.q_len + kQueries - 1) / kQueries;
    pool_.parallel_for(p_.batch * p_.q_heads * of_head, [&](int64_t item, int) {
      const int64_t head = item / of_head, first = item % of_head * kQueries;
      const int64_t b = head / p_.q_heads, h = head % p_.q_heads;
      emulator.attend(b, h, {first, std::min(first + kQueries, p_.q_len)}, out, [&](int64_t row) {
        return rounded_ ? rounded_->logsumexp_shift(in.q, b, h, row) : 0.0;
      });
    });
  }

  std::string kernel() const override { return fmt::format("emulated {}", accumulator_.text()); }
  std::optional<int64_t> requested_bytes() const override { return std::nullopt; }

 private:
  Problem p_;
  Accumulator accumulator_;
  ThreadPool& pool_;
  Buffer memory_;
  std::optional<RoundedInputs> rounded_;  // of a problem with a recipe
};

class EmulatedProvider final : public Provider {
 public:
  EmulatedProvider(std::string_view name, const Accumulator& accumulator, Dtype output)
      : name_(name), accumulator_(accumulator), output_(output) {}

  std::string_view name() const override { return name_; }
  std::string_view description() const override {
    if (output_ == Dtype::e4m3) return "the same, with O in e4m3";
    return accumulator_.promote_every == 0
               ? "8-bit products emulated, summed in the tensor cores alone"
               : "8-bit products emulated, their sums moved to fp32 registers every 128 keys";
  }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  bool on_request_only() const override { return true; }
  std::vector<Dtype> dtypes() const override { return {Dtype::bf16, Dtype::e4m3}; }
  std::vector<std::string_view> optional_axes() const override {
    return {"window_left", "window_right", "head_dim_v", "descale", "quantize"};
  }
  Accumulator accumulator(const Problem&) const override { return accumulator_; }
  Dtype output_dtype(const Problem&) const override { return output_; }

  std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo&) const override {
    if (!p.is_quantized()) return "it emulates 8-bit products: dtype e4m3, or bf16 with quantize";
    if (output_ == Dtype::e4m3 && !p.is_scaled())
      return "it stores O in e4m3, and so takes that only";
    const Descale descale = p.is_scaled() ? p.descale : recipe_of(p.quantize).descale;
    if (accumulator_.promote_every == 0 && descale == Descale::per_block) {
      return "one accumulator cannot sum blocks of V with factors of their own";
    }
    return std::nullopt;
  }
  int64_t workspace_bytes(const Problem& p, const DeviceInfo&) const override {
    return p.quantize == Quantize::none ? 0 : static_cast<int64_t>(RoundedInputs::memory_bytes(p));
  }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    return std::make_unique<EmulatedSession>(p, accumulator_, device);
  }

 private:
  std::string_view name_;
  Accumulator accumulator_;
  Dtype output_;
};

}  // namespace

std::unique_ptr<Provider> make_emulated_provider(std::string_view name,
                                                 const Accumulator& accumulator, Dtype output) {
  return std::make_unique<EmulatedProvider>(name, accumulator, output);
}

}  // namespace flashbench
