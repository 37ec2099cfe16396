// A provider whose behaviour a test defines.
#pragma once

#include <functional>
#include <string>

#include "case/choose.h"
#include "providers/provider.h"

namespace flashbench {

// Passes everything on to the real `tiled` provider, then calls `tamper` on the outputs.
class FakeProvider : public Provider {
 public:
  using Tamper = std::function<void(const Inputs&, const Outputs&, int run)>;
  explicit FakeProvider(Tamper tamper, std::string name = "fake", DeviceKind kind = DeviceKind::cpu)
      : tamper_(std::move(tamper)), name_(std::move(name)), kind_(kind) {}

  std::string_view name() const override { return name_; }
  std::string_view description() const override { return "tampers with a real provider's outputs"; }
  DeviceKind device_kind() const override { return kind_; }
  std::vector<std::string_view> optional_axes() const override { return axes; }
  std::optional<std::string> why_unsupported(const Problem&, const DeviceInfo&) const override {
    return refusal;
  }
  std::optional<std::string> why_unsupported_placement(const Problem&, Placement placement,
                                                       const DeviceInfo&) const override {
    if (placement == Placement::contiguous) return std::nullopt;
    return placement_refusal;
  }
  int64_t workspace_bytes(const Problem& problem, const DeviceInfo& info) const override {
    return real(kind_).workspace_bytes(problem, info);
  }
  std::unique_ptr<Session> prepare(const Problem& problem, Device& device) const override {
    if (extra_bytes > 0) device.allocate(extra_bytes, MemoryUse::workspace);
    return std::make_unique<FakeSession>(real(kind_).prepare(problem, device), *this);
  }

  static const Provider& real(DeviceKind kind) { return *choose_providers({"tiled"}, kind).at(0); }

  Dtype scores_dtype(const Problem& problem) const override {
    return scores.value_or(real(kind_).scores_dtype(problem));
  }

  std::optional<std::string> refusal, placement_refusal;
  std::vector<std::string_view> axes;
  std::optional<Dtype> scores;
  size_t extra_bytes = 0;

  // What sessions say of their parts. `part_runs` may stand in for one, by returning true.
  std::vector<RunPart> parts;
  std::function<bool(RunPart, const Inputs&, const Outputs&)> part_runs =
      [](RunPart, const Inputs&, const Outputs&) { return false; };

 private:
  class FakeSession : public Session {
   public:
    FakeSession(std::unique_ptr<Session> session, const FakeProvider& provider)
        : session_(std::move(session)), provider_(provider) {}
    void run(const Inputs& inputs, const Outputs& outputs) override {
      run_part(RunPart::whole, inputs, outputs);
    }
    std::vector<RunPart> parts() const override { return provider_.parts; }
    void run_part(RunPart part, const Inputs& inputs, const Outputs& outputs) override {
      if (provider_.part_runs(part, inputs, outputs) || part == RunPart::rounding) return;
      session_->run(inputs, outputs);
      provider_.tamper_(inputs, outputs, run_++);
    }
    std::string kernel() const override { return session_->kernel(); }
    std::optional<int64_t> requested_bytes() const override { return session_->requested_bytes(); }

   private:
    std::unique_ptr<Session> session_;
    const FakeProvider& provider_;
    int run_ = 0;
  };

  Tamper tamper_;
  std::string name_;
  DeviceKind kind_;
};

}  // namespace flashbench
