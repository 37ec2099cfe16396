// tiled:gather and its like: one problem on several devices, by an algorithm of
// src/providers/split/.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "kernels/attention.h"
#include "providers/providers.h"
#include "providers/split/algorithm.h"

namespace flashbench {

namespace {

const kernels::AttentionKernel& kernel_of(Pass pass) {
  const auto all = kernels::all_kernels();
  return **std::ranges::find_if(all, [&](const kernels::AttentionKernel* kernel) {
    return kernel->device == DeviceKind::cpu && kernel->pass == pass;
  });
}

// Counts what a session would allocate.
class CountingGroup final : public DeviceGroup {
 public:
  CountingGroup(const DeviceInfo& host, int ranks, int64_t& bytes)
      : info_(host), ranks_(ranks), bytes_(bytes) {
    info_.threads = std::max(1, info_.threads / ranks);
  }
  int ranks() const override { return ranks_; }
  const DeviceInfo& info(int) const override { return info_; }
  Buffer allocate(int, size_t bytes) override {
    bytes_ += static_cast<int64_t>(bytes);
    return {};
  }
  Stream stream(int) override { return {}; }
  void run(const std::function<void(int)>&) override { never(); }
  int64_t pull(int, int, std::vector<RowCopy>, int) override { never(); }
  void wait(int, int64_t) override { never(); }
  void set_mark(int, int) override { never(); }
  void barrier(int) override { never(); }
  void when_done(int, const std::function<void()>&) override { never(); }

 private:
  [[noreturn]] static void never() { throw std::logic_error("it only counts"); }

  DeviceInfo info_;
  int ranks_;
  int64_t& bytes_;
};

SplitParts parts_of(const Problem& p) {
  return {.kernel = &kernel_of(p.pass), .tokens = TokenSplit::of(p)};
}

class SplitProvider final : public Provider {
 public:
  explicit SplitProvider(const SplitKind& kind) : kind_(kind) {}

  std::string_view name() const override { return kind_.name; }
  std::string_view description() const override { return kind_.description; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  bool on_request_only() const override { return true; }
  std::vector<std::string_view> optional_axes() const override {
    return {"gpus", "split", "head_dim_v"};
  }

  std::optional<std::string> why_unsupported(const Problem& p, const DeviceInfo&) const override {
    if (!p.gpus) return "it runs problems that several devices share (gpus)";
    if (p.pass == Pass::backward && !kind_.backward) return "it has no backward pass";
    if (kind_.splits_keys != (p.split == Split::keys)) {
      return fmt::format(
          "it splits {}: expected split {}, got {}", kind_.splits_keys ? "keys" : "tokens",
          kind_.splits_keys ? "keys" : "zigzag or contiguous", flashbench::name(p.split));
    }
    if (!kind_.splits_keys && p.q_len != p.kv_len) {
      return fmt::format("it splits queries and keys alike: expected q_len = kv_len, got {} and {}",
                         p.q_len, p.kv_len);
    }
    if (kind_.splits_heads && (p.q_heads % *p.gpus != 0 || p.kv_heads % *p.gpus != 0)) {
      return fmt::format(
          "it splits heads: expected q_heads and kv_heads to be multiples of gpus, got {}, {} and "
          "{}",
          p.q_heads, p.kv_heads, *p.gpus);
    }
    return std::nullopt;
  }

  int64_t workspace_bytes(const Problem& p, const DeviceInfo& info) const override {
    int64_t bytes = 0;
    make_split_session(kind_, parts_of(p), p,
                       std::make_unique<CountingGroup>(info, static_cast<int>(*p.gpus), bytes));
    return bytes;
  }

  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    return make_split_session(kind_, parts_of(p), p, make_group(device, static_cast<int>(*p.gpus)));
  }

 private:
  const SplitKind& kind_;
};

}  // namespace

std::unique_ptr<Session> make_share_session(const Problem& p, Device& device) {
  auto group = make_group(device, static_cast<int>(p.gpus.value()));
  if (group == nullptr) return nullptr;
  return make_split_session(kShare, parts_of(p), p, std::move(group));
}

std::vector<std::unique_ptr<Provider>> make_split_providers() {
  std::vector<std::unique_ptr<Provider>> providers;
  for (const SplitKind& kind : kSplitKinds)
    providers.push_back(std::make_unique<SplitProvider>(kind));
  return providers;
}

}  // namespace flashbench
