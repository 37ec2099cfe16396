// Defects of kernels that read a K/V cache of bytes, planted around our own providers and run
// through the tool's own path: each ends as "failed", and the provider without them as "ok".
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "case/case_run.h"
#include "plan/suite.h"
#include "providers/providers.h"

namespace flashbench {
namespace {

// Copies of what a provider reads, for a defect to change.
struct SpoiltCache {
  std::vector<uint8_t> k, v;
  std::vector<float> k_factors, v_factors;
};

struct CacheDefect {
  std::string name;
  std::function<void(const Problem&, SpoiltCache&)> spoil = [](const Problem&, SpoiltCache&) {};
};

class SpoiltCacheSession final : public Session {
 public:
  SpoiltCacheSession(const Problem& p, const CacheDefect& defect, std::unique_ptr<Session> sound)
      : p_(p), defect_(defect), sound_(std::move(sound)) {}

  void run(const Inputs& in, const Outputs& out) override {
    const auto bytes = [](const ConstTensorView& t, int64_t elements) {
      const auto* data = static_cast<const uint8_t*>(t.data);
      return std::vector<uint8_t>(data, data + elements);
    };
    const auto factors = [&](const ConstTensorView& t) {
      return std::vector<float>(t.descales.data, t.descales.data + p_.key_descales());
    };
    SpoiltCache spoilt{bytes(in.k, p_.key_elements()), bytes(in.v, p_.value_elements()),
                       factors(in.k), factors(in.v)};
    defect_.spoil(p_, spoilt);
    Inputs read = in;
    read.k.data = spoilt.k.data();
    read.v.data = spoilt.v.data();
    read.k.descales.data = spoilt.k_factors.data();
    read.v.descales.data = spoilt.v_factors.data();
    sound_->run(read, out);
  }
  std::string kernel() const override { return defect_.name; }
  std::optional<int64_t> requested_bytes() const override { return std::nullopt; }

 private:
  Problem p_;
  const CacheDefect& defect_;
  std::unique_ptr<Session> sound_;
};

class SpoiltCacheProvider final : public Provider {
 public:
  SpoiltCacheProvider(CacheDefect defect, const Provider& sound)
      : defect_(std::move(defect)), sound_(sound) {}

  std::string_view name() const override { return defect_.name; }
  std::string_view description() const override { return "wrong on purpose"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  std::vector<std::string_view> optional_axes() const override { return sound_.optional_axes(); }
  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& info) const override {
    return sound_.why_unsupported(p, info);
  }
  int64_t workspace_bytes(const Problem&, const DeviceInfo&) const override { return 0; }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    return std::make_unique<SpoiltCacheSession>(p, defect_, sound_.prepare(p, device));
  }

 private:
  CacheDefect defect_;
  const Provider& sound_;
};

Record run_with(const Case& item, const Provider& sound, const CacheDefect& defect) {
  const auto device = make_host_device(2);
  CaseRunOptions options;
  options.time = false;
  const SpoiltCacheProvider provider(defect, sound);
  return run_case(item, {&provider}, *device, nullptr, options).at(0);
}

// What `tiled` computes in chunks of keys, and in tiles; without pages and with.
std::vector<Case> cases_of_caches(Dtype dtype) {
  std::vector<Case> cases;
  for (const int64_t q_len : {1, 90}) {
    for (const std::optional<int64_t>& page_size : {std::optional<int64_t>(), {16}}) {
      Case item;
      item.problem = {.dtype = dtype,
                      .mask = Mask::causal_bottom_right,
                      .batch = 2,
                      .q_heads = 4,
                      .kv_heads = 2,
                      .q_len = q_len,
                      .kv_len = 300,
                      .head_dim = 64};
      item.problem.kv_dtype = Dtype::e4m3;
      item.problem.page_size = page_size;
      item.inputs.distribution = Distribution::outliers;
      cases.push_back(item);
    }
  }
  return cases;
}

std::vector<CacheDefect> defects_of_caches() {
  return {
      {"factor of K of the next head",
       [](const Problem&, SpoiltCache& s) { std::swap(s.k_factors[0], s.k_factors[1]); }},
      {"factor of V of the next head",
       [](const Problem&, SpoiltCache& s) { std::swap(s.v_factors[0], s.v_factors[1]); }},
      {"factors of K and V swapped",
       [](const Problem&, SpoiltCache& s) { std::swap(s.k_factors, s.v_factors); }},
      {"factor of K left out",
       [](const Problem&, SpoiltCache& s) { std::ranges::fill(s.k_factors, 1.0f); }},
      {"factor of V left out",
       [](const Problem&, SpoiltCache& s) { std::ranges::fill(s.v_factors, 1.0f); }},
  };
}

TEST(ByteCacheMutants, AreCaught) {
  for (const auto& sound : {make_naive_provider(), make_tiled_provider(DeviceKind::cpu, "")}) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      for (const Case& item : cases_of_caches(dtype)) {
        const Record record = run_with(item, *sound, {"sound"});
        EXPECT_EQ(name(record.status), "ok") << record.reason << " " << item.key();
        for (const CacheDefect& defect : defects_of_caches()) {
          const Record wrong = run_with(item, *sound, defect);
          EXPECT_EQ(name(wrong.status), "failed") << defect.name << " " << item.key();
        }
      }
    }
  }
}

// A byte that is read as another number.
CacheDefect misread_in_cache(const std::string& name, uint8_t from, uint8_t to) {
  return {name, [=](const Problem&, SpoiltCache& s) {
            for (auto* tensor : {&s.k, &s.v}) {
              for (uint8_t& byte : *tensor) {
                if ((byte & 0x7f) == from) byte = static_cast<uint8_t>((byte & 0x80) | to);
              }
            }
          }};
}

TEST(ByteCacheMutants, OfTheFormatAreCaughtByTheAdversarialSuite) {
  std::vector<Case> cases;
  for (const SuiteGroup& group : make_suite("adversarial").groups) {
    if (group.name == "every byte in a cache") cases.push_back(group.cases.front());
    if (group.name == "NaN in a cache of bytes") cases.push_back(group.cases.front());
  }
  ASSERT_EQ(cases.size(), 2u);
  const auto tiled = make_tiled_provider(DeviceKind::cpu, "");
  for (const CacheDefect& defect :
       {misread_in_cache("the largest byte is NaN", 0x7e, 0x7f),
        misread_in_cache("NaN is 480", 0x7f, 0x7e),
        misread_in_cache("a subnormal is 0", 0x01, 0x00),
        misread_in_cache("the smallest normal number is the next", 0x08, 0x09)}) {
    EXPECT_TRUE(std::ranges::any_of(cases, [&](const Case& item) {
      return run_with(item, *tiled, defect).status == Status::failed;
    })) << defect.name;
  }
}

// What rounding costs does not depend on the provider, and its squares add up.
TEST(ByteCacheMutants, TheCostOfRoundingIsApartFromTheKernel) {
  const Case item = cases_of_caches(Dtype::bf16).back();
  const auto naive = make_naive_provider();
  const auto tiled = make_tiled_provider(DeviceKind::cpu, "");
  const auto cost = [&](const Provider& provider) {
    return run_with(item, provider, {"sound"}).verdict.recipe_cost.value();
  };
  const RecipeCost one = cost(*naive), other = cost(*tiled);
  EXPECT_EQ(one.quant.value, other.quant.value);
  EXPECT_GT(one.quant.value, 5 * one.kernel.value);
  EXPECT_NEAR(one.added().value(), 1, 0.05);
}

}  // namespace
}  // namespace flashbench
