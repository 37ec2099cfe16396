#include <fmt/format.h>

#include <algorithm>

#include "device/cu_seqlens.h"
#include "device/device_group.h"
#include "kernels/attention.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

using kernels::AttentionKernel;
using kernels::BlockSizes;
using kernels::Launch;

// The reasons that all kernels share come before those of the kernel itself.
std::optional<std::string> why_not(const AttentionKernel& kernel, const Problem& p,
                                   const DeviceInfo& info) {
  if (p.is_scaled() && !kernel.knows_e4m3) return "it does not take dtype e4m3";
  if (p.quantize != Quantize::none && !kernel.knows_quantize) return "it does not take quantize";
  if (p.kv_dtype && !kernel.knows_kv_dtype) return "it takes K and V in the dtype of Q only";
  if (p.has_window() && !kernel.knows_windows) return "it has no sliding windows";
  if (p.head_dim_v && !kernel.knows_head_dim_v) return "it takes V and O as wide as Q and K only";
  if (p.lengths && !kernel.knows_lengths) return "it takes requests of equal lengths only";
  if (p.is_paged() && !kernel.knows_pages) return "it takes K and V without pages only";
  return kernel.why_unsupported(p, info);
}

BlockSizes chosen_blocks(const AttentionKernel& kernel, const Problem& p, const DeviceInfo& info) {
  return kernel.choose == nullptr ? BlockSizes() : kernel.choose(p, info);
}

class TiledSession final : public Session {
 public:
  TiledSession(const AttentionKernel& kernel, const BlockSizes& blocks, const Problem& problem,
               Device& device)
      : kernel_(kernel),
        blocks_(blocks),
        problem_(problem.of_one_device()),
        device_(device),
        group_(part_of(device, problem)),
        cu_seqlens_(device, problem),
        workspace_(device.allocate(kernel.workspace_bytes(at()), MemoryUse::workspace)) {}

  void run(const Inputs& in, const Outputs& out) override { run_part(RunPart::whole, in, out); }
  void run_part(RunPart part, const Inputs& in, const Outputs& out) override {
    Launch launch = at();
    launch.part = part;
    kernel_.launch(launch, in, out, workspace_.data(),
                   group_ == nullptr ? device_.stream() : group_->stream(0));
  }
  std::string kernel() const override { return kernel_.variant(at()); }
  std::optional<int64_t> requested_bytes() const override { return kernel_.requested_bytes(at()); }
  std::optional<Schedule> schedule() const override {
    return kernel_.schedule == nullptr ? std::nullopt : kernel_.schedule(at());
  }
  std::vector<RunPart> parts() const override {
    if (problem_.quantize == Quantize::none) return {};
    return {RunPart::rounding, RunPart::attention};
  }

 private:
  // What several devices could share, one of them does alone: on a CPU a group of threads; a GPU is
  // one as it is.
  static std::unique_ptr<DeviceGroup> part_of(Device& device, const Problem& p) {
    if (!p.gpus || device.info().kind != DeviceKind::cpu) return nullptr;
    return make_group(device, static_cast<int>(*p.gpus));
  }

  Launch at() const {
    const DeviceInfo& info = group_ == nullptr ? device_.info() : group_->info(0);
    return {problem_, info, blocks_, cu_seqlens_.queries(), cu_seqlens_.keys()};
  }

  const AttentionKernel& kernel_;
  BlockSizes blocks_;
  Problem problem_;
  Device& device_;
  std::unique_ptr<DeviceGroup> group_;  // of which it takes one
  CuSeqlens cu_seqlens_;
  Buffer workspace_;
};

class TiledProvider final : public Provider {
 public:
  TiledProvider(DeviceKind device, std::string_view family)
      : device_(device), family_(family), name_("tiled") {
    if (!family.empty()) name_ = std::string(kFamilyPrefix) += family;
  }

  std::string_view name() const override { return name_; }
  std::string_view description() const override {
    return family_.empty() ? "flashbench's fused kernels: online softmax over tiles of K and V, S "
                             "and P never in memory"
                           : "only flashbench's kernels of this family";
  }
  DeviceKind device_kind() const override { return device_; }
  bool on_request_only() const override { return !family_.empty(); }
  std::vector<std::string_view> optional_axes() const override {
    std::vector<std::string_view> known = kEveryOptionalAxis;
    known.insert(known.end(), {"gpus", "split", "descale", "quantize", "kv_dtype"});
    return known;
  }
  std::vector<Dtype> dtypes() const override {
    std::vector<Dtype> known(kUnscaledDtypes.begin(), kUnscaledDtypes.end());
    const bool takes_bytes = std::ranges::any_of(
        kernels::all_kernels(),
        [&](const AttentionKernel* kernel) { return is_mine(*kernel) && kernel->knows_e4m3; });
    if (takes_bytes) known.push_back(Dtype::e4m3);
    return known;
  }

  // That of the kernels that take bytes, which are of one design.
  Accumulator accumulator(const Problem& p) const override {
    for (const AttentionKernel* kernel : kernels::all_kernels()) {
      if (!is_mine(*kernel)) continue;
      if (p.is_scaled() ? kernel->knows_e4m3 : kernel->knows_quantize) return kernel->accumulator;
    }
    return {};
  }

  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& info) const override {
    std::string reasons;
    if (find(p, info, &reasons) != nullptr) return std::nullopt;
    return reasons.empty() ? fmt::format("there is no {} kernel of {} for {}",
                                         flashbench::name(p.pass), name_, flashbench::name(device_))
                           : reasons;
  }
  std::optional<std::string> why_unsupported_placement(const Problem& p, Placement placement,
                                                       const DeviceInfo& info) const override {
    const AttentionKernel* kernel = find(p, info);
    if (placement != Placement::offset || kernel == nullptr || !kernel->needs_aligned_rows) {
      return std::nullopt;
    }
    return fmt::format("{}: every row has to start at a multiple of 16 bytes", kernel->name);
  }
  int64_t workspace_bytes(const Problem& p, const DeviceInfo& info) const override {
    const AttentionKernel* kernel = find(p, info);
    if (kernel == nullptr) return 0;
    return static_cast<int64_t>(
        kernel->workspace_bytes({p, info, chosen_blocks(*kernel, p, info)}));
  }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    const AttentionKernel& kernel = *find(p, device.info());
    return make_kernel_session(kernel, chosen_blocks(kernel, p, device.info()), p, device);
  }

 private:
  bool is_mine(const AttentionKernel& kernel) const {
    return kernel.device == device_ && (family_.empty() || kernel.family == family_);
  }

  // Returns the first kernel in the list that supports the problem; or null, and the reasons why
  // none does.
  const AttentionKernel* find(const Problem& p, const DeviceInfo& info,
                              std::string* reasons = nullptr) const {
    for (const AttentionKernel* kernel : kernels::all_kernels()) {
      if (!is_mine(*kernel) || kernel->pass != p.pass) continue;
      const std::optional<std::string> reason = why_not(*kernel, p, info);
      if (!reason) return kernel;
      if (reasons != nullptr) {
        *reasons += fmt::format("{}{}: {}", reasons->empty() ? "" : "; ", kernel->name, *reason);
      }
    }
    return nullptr;
  }

  DeviceKind device_;
  std::string_view family_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Provider> make_tiled_provider(DeviceKind device, std::string_view family) {
  return std::make_unique<TiledProvider>(device, family);
}

std::unique_ptr<Session> make_kernel_session(const AttentionKernel& kernel,
                                             const BlockSizes& blocks, const Problem& problem,
                                             Device& device) {
  return std::make_unique<TiledSession>(kernel, blocks, problem, device);
}

}  // namespace flashbench
