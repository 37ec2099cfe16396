// Defects of kernels on bytes, planted around the emulation and run through the tool's own path:
// each ends as "failed", and the emulation without them as "ok".
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "attention/e4m3.h"
#include "attention/half.h"
#include "attention/recipe.h"
#include "case/case_run.h"
#include "inputs/hadamard.h"
#include "plan/suite.h"
#include "providers/providers.h"

namespace flashbench {
namespace {

// Copies of inputs, for a defect to change.
struct Spoilt {
  Inputs inputs;
  std::vector<std::byte> k, v;
  std::vector<float> q_descales, k_descales, v_descales;
};

struct PlantedDefect {
  std::string name;
  Accumulator accumulator{true, 128};  // what it does; what it declares is promoted:128
  Dtype output = Dtype::bf16;
  std::function<void(const Problem&, Spoilt&)> before = [](const Problem&, Spoilt&) {};
  std::function<void(const Problem&, const Outputs&)> after = [](const Problem&, const Outputs&) {};
};

std::vector<std::byte> bytes_of(const ConstTensorView& t) {
  const auto* data = static_cast<const std::byte*>(t.data);
  return {data, data + t.elements() * element_size(t.dtype)};
}

std::vector<float> factors_of(const ConstTensorView& t, int64_t count) {
  if (t.descales.data == nullptr) return {};
  return {t.descales.data, t.descales.data + count};
}

class DefectiveSession final : public Session {
 public:
  DefectiveSession(const Problem& p, const PlantedDefect& defect, std::unique_ptr<Session> sound)
      : p_(p), defect_(defect), sound_(std::move(sound)) {}

  void run(const Inputs& in, const Outputs& out) override {
    Spoilt spoilt{in,
                  bytes_of(in.k),
                  bytes_of(in.v),
                  factors_of(in.q, p_.query_descales()),
                  factors_of(in.k, p_.key_descales()),
                  factors_of(in.v, p_.key_descales())};
    spoilt.inputs.k.data = spoilt.k.data();
    spoilt.inputs.v.data = spoilt.v.data();
    spoilt.inputs.q.descales.data = spoilt.q_descales.data();
    spoilt.inputs.k.descales.data = spoilt.k_descales.data();
    spoilt.inputs.v.descales.data = spoilt.v_descales.data();
    defect_.before(p_, spoilt);
    sound_->run(spoilt.inputs, out);
    defect_.after(p_, out);
  }
  std::string kernel() const override { return defect_.name; }
  std::optional<int64_t> requested_bytes() const override { return std::nullopt; }

 private:
  Problem p_;
  PlantedDefect defect_;
  std::unique_ptr<Session> sound_;
};

class DefectiveProvider final : public Provider {
 public:
  explicit DefectiveProvider(PlantedDefect defect)
      : defect_(std::move(defect)),
        sound_(make_emulated_provider(defect_.name, defect_.accumulator, defect_.output)) {}

  std::string_view name() const override { return defect_.name; }
  std::string_view description() const override { return "an emulation, wrong on purpose"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  std::vector<Dtype> dtypes() const override { return sound_->dtypes(); }
  std::vector<std::string_view> optional_axes() const override { return sound_->optional_axes(); }
  Accumulator accumulator(const Problem&) const override { return {true, 128}; }
  Dtype output_dtype(const Problem&) const override { return defect_.output; }
  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& info) const override {
    return sound_->why_unsupported(p, info);
  }
  int64_t workspace_bytes(const Problem&, const DeviceInfo&) const override { return 0; }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    return std::make_unique<DefectiveSession>(p, defect_, sound_->prepare(p, device));
  }

 private:
  PlantedDefect defect_;
  std::unique_ptr<Provider> sound_;
};

Record run(const Case& item, PlantedDefect defect) {
  const auto device = make_host_device(2);
  CaseRunOptions options;
  options.time = false;
  const DefectiveProvider provider(std::move(defect));
  return run_case(item, {&provider}, *device, nullptr, options).at(0);
}

void expect_ok(const Case& item) {
  const Record record = run(item, {"sound"});
  EXPECT_EQ(name(record.status), "ok") << record.reason << " " << item.key();
}

void expect_caught(const Case& item, const PlantedDefect& defect) {
  const Record record = run(item, defect);
  EXPECT_EQ(name(record.status), "failed") << defect.name << " " << item.key();
  EXPECT_FALSE(record.verdict.passed()) << defect.name;
}

Case case_of_bytes(Descale descale, Mask mask) {
  Case item;
  item.problem = {.dtype = Dtype::e4m3,
                  .mask = mask,
                  .batch = 2,
                  .q_heads = 4,
                  .kv_heads = 2,
                  .q_len = 90,
                  .kv_len = 300,
                  .head_dim = 64,
                  .descale = descale};
  item.inputs.distribution = Distribution::outliers;
  return item;
}

// The factors of the next head in place of a head's own.
void shift_factors(std::vector<float>& factors, int64_t by) {
  std::rotate(factors.begin(), factors.begin() + by, factors.end());
}

std::vector<PlantedDefect> defects_of_factors() {
  return {
      {.name = "factor of K of the next head",
       .before = [](const Problem& p,
                    Spoilt& s) { shift_factors(s.k_descales, p.key_descales() / 4); }},
      {.name = "factor of V of the next head",
       .before = [](const Problem& p,
                    Spoilt& s) { shift_factors(s.v_descales, p.key_descales() / 4); }},
      {.name = "factors of Q and K of another batch", .before = [](const Problem& p, Spoilt& s) {
         shift_factors(s.q_descales, p.query_descales() / 2);
         shift_factors(s.k_descales, p.key_descales() / 2);
       }}};
}

std::vector<PlantedDefect> defects_of_bytes() {
  return {{.name = "offset left in the logsumexp",
           .after =
               [](const Problem& p, const Outputs& out) {
                 for (int64_t i = 0; i < p.query_rows(); ++i) {
                   out.logsumexp[i] += 8 * std::numbers::ln2_v<float>;
                 }
               }},
          {.name = "one group of 16 keys of V permuted",
           .before =
               [](const Problem& p, Spoilt& s) {  // in the order of an accumulator's registers
                 constexpr std::array<int64_t, 16> kOrder{0, 1, 8,  9,  2, 3, 10, 11,
                                                          4, 5, 12, 13, 6, 7, 14, 15};
                 const std::vector<std::byte> v = s.v;
                 for (int64_t i = 0; i < 16; ++i) {
                   const auto at = [&](int64_t row) {
                     return static_cast<size_t>(s.inputs.v.offset(1, 1, 32 + row));
                   };
                   std::memcpy(&s.v[at(i)], &v[at(kOrder[static_cast<size_t>(i)])],
                               static_cast<size_t>(p.value_dim()));
                 }
               }},
          {.name = "P beyond 448", .accumulator = {true, 128, 10}}};
}

TEST(EmulatedMutants, OfFactorsAreCaught) {
  for (const Descale descale : {Descale::per_head, Descale::per_block}) {
    for (const Mask mask : {Mask::none, Mask::causal_bottom_right}) {
      const Case item = case_of_bytes(descale, mask);
      expect_ok(item);
      for (const PlantedDefect& defect : defects_of_factors()) expect_caught(item, defect);
    }
  }
}

TEST(EmulatedMutants, OfBytesAreCaught) {
  for (const Descale descale : kDescales) {
    for (const Mask mask : kMasks) {
      const Case item = case_of_bytes(descale, mask);
      expect_ok(item);
      for (const PlantedDefect& defect : defects_of_bytes()) expect_caught(item, defect);
    }
  }
}

std::vector<PlantedDefect> defects_of_output() {
  const auto each = [](uint8_t (*other)(uint8_t byte)) {
    return [=](const Problem& p, const Outputs& out) {
      for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t h = 0; h < p.q_heads; ++h) {
          for (int64_t row = 0; row < p.q_len; ++row) {
            auto* bytes = static_cast<uint8_t*>(out.o.data) + out.o.offset(b, h, row);
            std::transform(bytes, bytes + p.value_dim(), bytes, other);
          }
        }
      }
    };
  };
  return {{.name = "O not divided by its factor",
           .output = Dtype::e4m3,
           .after = each([](uint8_t byte) { return float_to_e4m3(e4m3_to_float(byte) / 64); })},
          {.name = "O a unit too large",
           .output = Dtype::e4m3,
           .after = each([](uint8_t byte) {
             return static_cast<uint8_t>((byte & 0x7f) < 0x7e ? byte + 1 : byte);
           })}};
}

// With a mean of V: else O is as small as the error that the rounding of P explains.
TEST(EmulatedMutants, OfOutputInE4m3AreCaught) {
  for (const Descale descale : kDescales) {
    Case item = case_of_bytes(descale, Mask::causal_bottom_right);
    item.inputs.distribution = Distribution::mean_v;
    const Record sound = run(item, {.name = "sound", .output = Dtype::e4m3});
    EXPECT_EQ(name(sound.status), "ok") << sound.reason;
    EXPECT_EQ(sound.output_dtype, "e4m3");
    for (const PlantedDefect& defect : defects_of_output()) expect_caught(item, defect);
  }
}

// A byte that is read as another number.
PlantedDefect misread(const std::string& name, uint8_t from, uint8_t to) {
  return {.name = name, .before = [=](const Problem&, Spoilt& s) {
            for (auto* tensor : {&s.k, &s.v}) {
              for (std::byte& byte : *tensor) {
                if ((byte & std::byte{0x7f}) == std::byte{from}) {
                  byte = (byte & std::byte{0x80}) | std::byte{to};
                }
              }
            }
          }};
}

std::vector<PlantedDefect> defects_of_the_format() {
  return {misread("the largest byte is NaN", 0x7e, 0x7f), misread("NaN is 480", 0x7f, 0x7e),
          misread("a subnormal is 0", 0x01, 0x00),
          misread("the smallest normal number is the next", 0x08, 0x09)};
}

// Each defect is found by some case of the adversarial suite, of which an emulation without it
// passes all (tests/e2e/test_suite.py).
TEST(EmulatedMutants, TheAdversarialSuiteFindsEach) {
  std::vector<Case> cases = suite_config(make_suite("adversarial")).cases;
  std::erase_if(cases, [](const Case& item) { return !item.problem.is_scaled(); });
  std::vector<PlantedDefect> defects{{.name = "P in units of 1", .accumulator = {true, 128, 0}},
                                     {.name = "no promotion", .accumulator = {true, 0}}};
  for (auto&& more : {defects_of_factors(), defects_of_bytes(), defects_of_the_format()}) {
    defects.insert(defects.end(), more.begin(), more.end());
  }
  for (const PlantedDefect& defect : defects) {
    EXPECT_TRUE(std::any_of(cases.rbegin(), cases.rend(), [&](const Case& item) {
      return run(item, defect).status == Status::failed;
    })) << defect.name;
  }
}

// Elements of P that become 0 although the sum counts them, among many keys with a mean of V. Of n
// scores with a standard deviation s the largest is about s sqrt(2 ln n), and most weight is of
// those near s^2: with this many keys and s = 2.4, a tenth of it is less than 2^-10 of the largest.
TEST(EmulatedMutants, AFlushedPIsCaught) {
  Case item = case_of_bytes(Descale::per_head, Mask::none);
  item.problem.kv_len = 32768;
  item.problem.q_len = 8;
  item.problem.scale = 0.3;
  item.inputs.distribution = Distribution::mean_v;
  expect_ok(item);
  const PlantedDefect defect{.name = "P in units of 1", .accumulator = {true, 128, 0}};
  expect_caught(item, defect);
  EXPECT_GT(run(item, defect).verdict.tensors.at(0).lambda, 18);  // three times what fails
}

TEST(EmulatedMutants, WithoutPromotionIsCaught) {
  Case item = case_of_bytes(Descale::per_head, Mask::none);
  item.problem.batch = 1;
  item.problem.q_len = 2;
  item.problem.kv_len = 32768;
  item.inputs.distribution = Distribution::mean_v;
  expect_ok(item);
  expect_caught(item, {.name = "no promotion", .accumulator = {true, 0}});
}

TEST(EmulatedMutants, OfRecipesAreCaught) {
  for (const Quantize quantize : kQuantizes) {
    if (quantize == Quantize::none) continue;
    Case item = case_of_bytes(Descale::per_head, Mask::causal_bottom_right);
    item.problem.dtype = Dtype::bf16;
    item.problem.quantize = quantize;
    expect_ok(item);
    if (!recipe_of(quantize).hadamard) continue;
    // The signs twice on K are none.
    expect_caught(item, {.name = "signs on Q only", .before = [](const Problem& p, Spoilt& s) {
                           for (int64_t i = 0; i < p.key_elements(); ++i) {
                             const float value = load_element(s.k.data(), Dtype::bf16, i);
                             store_element(s.k.data(), Dtype::bf16, i,
                                           value * hadamard_sign(i % p.head_dim));
                           }
                         }});
  }
}

// The recipe takes the mean of K from the scores, so that O is that of any mean.
TEST(EmulatedMutants, AnotherMeanOfKInTheLogsumexpIsCaught) {
  Case item = case_of_bytes(Descale::per_head, Mask::none);
  item.problem.dtype = Dtype::bf16;
  item.problem.quantize = Quantize::e4m3_block_smooth_k;
  item.inputs.distribution = Distribution::normal;
  expect_ok(item);
  expect_caught(item, {.name = "mean of another K", .before = [](const Problem& p, Spoilt& s) {
                         for (int64_t i = 0; i < p.key_elements(); ++i) {
                           const float value = load_element(s.k.data(), Dtype::bf16, i);
                           store_element(s.k.data(), Dtype::bf16, i, value + 1);
                         }
                       }});
}

}  // namespace
}  // namespace flashbench
