#include "case/beside.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "providers/providers.h"

namespace flashbench {

Beside::Beside(Scene& scene, GemmCeiling& gemm, bool several_devices) : gemm_(gemm) {
  try {
    outputs_.emplace(scene.device, scene.problem.of_one_device(), scene.item.placement);
    works_ =
        round_ceilings(scene.device, scene.problem, scene.inputs_of_one().view(), outputs_->view());
    if (several_devices) add_same_work(scene);
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

}  // namespace flashbench
