#include "case/beside.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "case/choose.h"
#include "providers/providers.h"
#include "verify/oracle.h"

namespace flashbench {

namespace {

// Some rows are enough for a kernel that other cases verify.
constexpr double kUnroundedFlops = 2e9;

bool is_right(const Provider& provider, const Problem& p, const Scene& scene,
              const DeviceOutputs& outputs) {
  if (!outputs.damage().empty()) return false;
  const OracleBudget budget{.fp64_flops =
                                std::min(scene.options.verify.fp64_flops, kUnroundedFlops)};
  HostOutputs taken = outputs.to_host();
  return Oracle(p, scene.host.inputs(), storage_of(provider, p), budget, scene.device)
      .judge(taken.view())
      .passed();
}

}  // namespace

Beside::Beside(Scene& scene, GemmCeiling& gemm, bool several_devices) : gemm_(gemm) {
  try {
    outputs_.emplace(scene.device, scene.problem.of_one_device(), scene.item.placement);
    works_ =
        round_ceilings(scene.device, scene.problem, scene.inputs_of_one().view(), outputs_->view());
    if (several_devices) add_same_work(scene);
    if (scene.problem.quantize != Quantize::none) add_unrounded(scene);
  } catch (const OutOfMemory&) {
    // The row of the providers does not depend on them.
  }
}

std::vector<Contender> Beside::contenders() const {
  std::vector<Contender> all{Contender::of([this] { gemm_.run(); })};
  for (const CeilingWork& work : works_) {
    all.push_back(Contender::of(work.run));
    all.back().prolongs = false;
  }
  return all;
}

void Beside::add_to(Record& record, std::span<const Timing> timings) const {
  record.gemm = timings.front().measurement;
  record.gemm_flops = gemm_.flops();
  for (size_t i = 0; i < works_.size(); ++i) {
    const Measurement& measured = timings[i + 1].measurement;
    if (measured.seconds.empty()) continue;
    record.round_ceilings.push_back(
        {works_[i].name, works_[i].unit, works_[i].description, works_[i].work, measured});
  }
}

void Beside::add_same_work(Scene& scene) {
  share_ = make_share_session(scene.problem, scene.device);
  if (share_ == nullptr) return;
  shared_outputs_.emplace(scene.device, scene.problem, scene.item.placement);
  const auto run = [this, &scene] { share_->run(scene.inputs.view(), shared_outputs_->view()); };
  run();  // copies what the others have
  share_->group()->only(GroupPart::computing);
  works_.push_back({std::string(kSameWork), "run/s",
                    fmt::format("one device alone with the work of one of {}", *scene.problem.gpus),
                    1, run});
}

// Without a supported kernel, or right outputs, there is none.
void Beside::add_unrounded(Scene& scene) {
  Problem p = scene.problem.of_one_device();
  p.quantize = Quantize::none;
  const DeviceInfo& info = scene.device.info();
  const Provider& tiled = *choose_providers({"tiled"}, info.kind).at(0);
  if (tiled.why_unsupported(p, info)) return;
  unrounded_ = tiled.prepare(p, scene.device);
  unrounded_outputs_.emplace(scene.device, p, scene.item.placement);
  const auto run = [this, &scene] {
    unrounded_->run(scene.inputs_of_one().view(), unrounded_outputs_->view());
  };
  unrounded_->prepare_inputs(scene.inputs_of_one().view());
  run();
  scene.device.synchronize();
  if (!is_right(tiled, p, scene, *unrounded_outputs_)) return;
  works_.push_back({std::string(kUnrounded), "run/s",
                    fmt::format("{} on the inputs as they are", unrounded_->kernel()), 1, run});
}

}  // namespace flashbench
