// The simulated kernel as a provider, so that the tool's own path has to find its defects.
#pragma once

#include "mutants/simulated_kernel.h"
#include "providers/provider.h"

namespace flashbench {

class MutantProvider : public Provider {
 public:
  // `partials`: the dtype that it declares for its partial results.
  explicit MutantProvider(const verify::Simulation& simulation, Dtype partials = Dtype::fp32)
      : simulation_(simulation), partials_(partials) {}

  std::string_view name() const override { return flashbench::name(simulation_.defect); }
  std::string_view description() const override { return "a simulated kernel, wrong on purpose"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  std::vector<std::string_view> optional_axes() const override { return kEveryOptionalAxis; }
  std::optional<std::string> why_unsupported(const Problem&, const DeviceInfo&) const override {
    return std::nullopt;
  }
  Dtype partials_dtype(const Problem&) const override { return partials_; }
  int64_t workspace_bytes(const Problem&, const DeviceInfo&) const override { return 0; }
  std::unique_ptr<Session> prepare(const Problem&, Device&) const override;

 private:
  verify::Simulation simulation_;
  Dtype partials_;
};

}  // namespace flashbench
