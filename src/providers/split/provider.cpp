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

// A sentence that says why an algorithm cannot use this kernel; empty if it can.
std::optional<std::string> why_no_use(const kernels::AttentionKernel& kernel, const SplitKind& kind,
                                      const Problem& p, const DeviceInfo& info) {
  const bool waits = info.kind == DeviceKind::cpu ? kernel.knows_gates : kernel.knows_shares;
  if (kind.has_key_sums(p.pass, info.kind)) {
    if (kernel.store_key_sums == nullptr) return "it adds to no sums that several GPUs share";
  } else if (kind.gates && !waits) {
    return "it does not wait for keys that arrive";
  }
  if (kind.fp32_outputs(p.pass, info.kind).any() && p.dtype != Dtype::fp32 &&
      !kernel.knows_fp32_outputs) {
    return "it gives no partial results in fp32";
  }
  if (p.head_dim_v && !kernel.knows_head_dim_v) return "it takes V and O as wide as Q and K only";
  return kernel.why_unsupported(p.of_one_device(), info);
}

// The first of our kernels for the device that an algorithm can use; or null, and the reasons why
// it can use none.
const kernels::AttentionKernel* find_kernel(const SplitKind& kind, const Problem& p,
                                            const DeviceInfo& info, std::string& reasons) {
  for (const kernels::AttentionKernel* kernel : kernels::all_kernels()) {
    if (kernel->device != info.kind || kernel->pass != p.pass) continue;
    const std::optional<std::string> why = why_no_use(*kernel, kind, p, info);
    if (!why) return kernel;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", kernel->name, *why);
  }
  return nullptr;
}

// Counts what a session would allocate.
class CountingGroup final : public DeviceGroup {
 public:
  CountingGroup(const DeviceInfo& device, int ranks, int64_t& bytes)
      : info_(device), ranks_(ranks), bytes_(bytes) {
    if (device.kind == DeviceKind::cpu) info_.threads = std::max(1, info_.threads / ranks);
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
  std::vector<double> rank_seconds() const override { never(); }

 private:
  [[noreturn]] static void never() { throw std::logic_error("it only counts"); }

  DeviceInfo info_;
  int ranks_;
  int64_t& bytes_;
};

SplitParts parts_of(const SplitKind& kind, const Problem& p, const DeviceInfo& info) {
  std::string reasons;
  return {.kernel = find_kernel(kind, p, info, reasons),
          .fp32_outputs = kind.fp32_outputs(p.pass, info.kind),
          .tokens = TokenSplit::of(p)};
}

class SplitProvider final : public Provider {
 public:
  SplitProvider(const SplitKind& kind, DeviceKind device) : kind_(kind), device_(device) {}

  std::string_view name() const override { return kind_.name; }
  std::string_view description() const override { return kind_.description; }
  DeviceKind device_kind() const override { return device_; }
  bool on_request_only() const override { return true; }
  std::optional<std::string> why_absent() const override {
    if (!kind_.nccl || nccl_library().error.empty()) return std::nullopt;
    return nccl_library().error;
  }
  std::vector<std::string_view> optional_axes() const override {
    return {"gpus", "split", "head_dim_v"};
  }

  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& info) const override {
    if (const auto why = why_absent()) return why;
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
    if (auto why = why_too_few_gpus(p, info)) return why;
    if (kind_.has_key_sums(p.pass, info.kind) && !info.ranks_add_to_others) {
      return "it adds to the memory of other GPUs, and the links between these carry no atomic "
             "additions";
    }
    if (kind_.nccl) {
      if (const auto why = why_no_nccl(info, nccl_library())) return why;
    }
    std::string reasons;
    if (find_kernel(kind_, p, info, reasons) != nullptr) return std::nullopt;
    return reasons;
  }
  std::optional<std::string> why_unsupported_placement(const Problem& p, Placement placement,
                                                       const DeviceInfo& info) const override {
    std::string reasons;
    const kernels::AttentionKernel* kernel = find_kernel(kind_, p, info, reasons);
    if (placement != Placement::offset || kernel == nullptr || !kernel->needs_aligned_rows) {
      return std::nullopt;
    }
    return fmt::format("{}: every row has to start at a multiple of 16 bytes", kernel->name);
  }

  int64_t workspace_bytes(const Problem& p, const DeviceInfo& info) const override {
    int64_t bytes = 0;
    make_split_session(kind_, parts_of(kind_, p, info), p,
                       std::make_unique<CountingGroup>(info, static_cast<int>(*p.gpus), bytes));
    return bytes;
  }

  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    const auto ranks = static_cast<int>(*p.gpus);
    return make_split_session(
        kind_, parts_of(kind_, p, device.info()), p,
        kind_.nccl ? make_nccl_group(device, ranks) : make_group(device, ranks));
  }

 private:
  const SplitKind& kind_;
  DeviceKind device_;
};

}  // namespace

std::optional<std::string> why_too_few_gpus(const Problem& p, const DeviceInfo& info) {
  const int named = std::max(1, info.ranks);
  if (!p.gpus || info.kind == DeviceKind::cpu || *p.gpus <= named) return std::nullopt;
  return fmt::format("it needs {} GPUs, and --device names {}: cuda:0,1,... names several", *p.gpus,
                     named);
}

std::unique_ptr<Session> make_share_session(const Problem& p, Device& device) {
  auto group = make_group(device, static_cast<int>(p.gpus.value()));
  if (group == nullptr) return nullptr;
  return make_split_session(kShare, parts_of(kShare, p, device.info()), p, std::move(group));
}

std::vector<std::unique_ptr<Provider>> make_split_providers(DeviceKind device) {
  std::vector<std::unique_ptr<Provider>> providers;
  for (const SplitKind& kind : kSplitKinds) {
    providers.push_back(std::make_unique<SplitProvider>(kind, device));
  }
  if (device == DeviceKind::cuda) {
    providers.push_back(std::make_unique<SplitProvider>(kNcclRing, device));
  }
  return providers;
}

}  // namespace flashbench
