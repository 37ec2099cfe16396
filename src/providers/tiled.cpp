#include <fmt/format.h>

#include "kernels/attention.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

using kernels::AttentionKernel;

class TiledSession final : public Session {
 public:
  TiledSession(const AttentionKernel& kernel, const Problem& problem, Device& device)
      : kernel_(kernel),
        problem_(problem),
        device_(device),
        workspace_(device.allocate(kernel.workspace_bytes(problem, device.info()),
                                   MemoryUse::workspace)) {}

  void run(const Inputs& in, const Outputs& out) override {
    kernel_.launch(problem_, in, out, workspace_.data(), device_.stream());
  }
  std::string kernel() const override { return kernel_.variant(problem_, device_.info()); }
  int64_t requested_bytes() const override {
    return kernel_.requested_bytes(problem_, device_.info());
  }

 private:
  const AttentionKernel& kernel_;
  Problem problem_;
  Device& device_;
  Buffer workspace_;
};

class TiledProvider final : public Provider {
 public:
  explicit TiledProvider(DeviceKind device) : device_(device) {}

  std::string_view name() const override { return "tiled"; }
  std::string_view description() const override {
    return "own fused kernel: online softmax over tiles of K and V, S and P never in memory";
  }
  DeviceKind device_kind() const override { return device_; }

  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& info) const override {
    std::string reasons;
    if (find(p, info, &reasons) != nullptr) return std::nullopt;
    return reasons.empty() ? fmt::format("there is no {} kernel for {}", flashbench::name(p.pass),
                                         flashbench::name(device_))
                           : reasons;
  }
  int64_t workspace_bytes(const Problem& p, const DeviceInfo& info) const override {
    const AttentionKernel* kernel = find(p, info);
    return kernel == nullptr ? 0 : static_cast<int64_t>(kernel->workspace_bytes(p, info));
  }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    return std::make_unique<TiledSession>(*find(p, device.info()), p, device);
  }

 private:
  // The first kernel listed that supports the problem, or null and why none does.
  const AttentionKernel* find(const Problem& p, const DeviceInfo& info,
                              std::string* reasons = nullptr) const {
    for (const AttentionKernel* kernel : kernels::all_kernels()) {
      if (kernel->device != device_ || kernel->pass != p.pass) continue;
      const std::optional<std::string> reason = kernel->why_unsupported(p, info);
      if (!reason) return kernel;
      if (reasons != nullptr) {
        *reasons += fmt::format("{}{}: {}", reasons->empty() ? "" : "; ", kernel->name, *reason);
      }
    }
    return nullptr;
  }

  DeviceKind device_;
};

}  // namespace

std::unique_ptr<Provider> make_tiled_provider(DeviceKind device) {
  return std::make_unique<TiledProvider>(device);
}

}  // namespace flashbench
