#include "case/scene.h"

#include <algorithm>

#include "case/audits.h"
#include "verify/coarse.h"
#include "verify/expectation.h"

namespace flashbench {

namespace {

// Some rows are enough to find kept results.
constexpr double kOtherScoresFlops = 2e9;

}  // namespace

Storage storage_of(const Provider& provider, const Problem& problem) {
  return {provider.scores_dtype(problem), provider.partials_dtype(problem),
          provider.accumulator(problem)};
}

Scene::Scene(const Case& c, Device& d, const Storage& storage, const CaseRunOptions& o,
             const Watch& w, PhaseClock& p)
    : item(c),
      device(d),
      options(o),
      watch(w),
      clock(p),
      problem(item.problem),
      host(problem, item.inputs, *d.stream().threads),
      inputs(d, problem, item.placement, with_exact_forward(storage)),
      input_bytes(d.used().input - inputs.guard_bytes()),
      input_hash(inputs.hash()) {}

Inputs Scene::with_exact_forward(const Storage& storage) {
  if (problem.pass == Pass::backward) {
    oracle(storage).exact_forward(host.mutable_o(), host.mutable_logsumexp());
  }
  return host.inputs();
}

const Oracle& Scene::oracle(const Storage& storage) {
  auto& made = oracles[storage];
  if (made == nullptr) {
    const PhaseClock::Phase phase(clock, "reference");
    made = std::make_unique<Oracle>(problem, host.inputs(), storage,
                                    OracleBudget{.fp64_flops = options.verify.fp64_flops}, device,
                                    host.before_rounding());
  }
  return *made;
}

Verdict Scene::judge(const Provider& provider, HostOutputs& outputs) {
  const PhaseClock::Phase phase(clock, "judge");
  const Storage storage = storage_of(provider, problem);
  Verdict verdict = oracle(storage).judge(outputs.view());
  if (!verdict.passed()) return verdict;
  verdict.reason = broken_expectation(problem, item.inputs, storage, host.inputs(), outputs.view());
  if (!verdict.reason.empty()) verdict.status = Verdict::Status::failed;
  if (verdict.passed() && is_remarkable(verdict, problem.dtype)) {
    verdict.coarse = why_coarse(oracle({}).judge(outputs.view()), problem.dtype, storage);
  }
  return verdict;
}

OtherScores& Scene::other_scores() {
  if (!other_scores_) {
    const OracleBudget budget{.fp64_flops = std::min(options.verify.fp64_flops, kOtherScoresFlops)};
    other_scores_.emplace(problem, host.inputs(), item.inputs.seed, budget, device);
  }
  return *other_scores_;
}

Verdict Scene::judge_other_scores(const Provider& provider, HostOutputs& outputs) {
  return other_scores().judge(storage_of(provider, problem), outputs.view());
}

DeviceInputs& Scene::inputs_of_one() {
  if (!problem.gpus || device.cuda_ranks() == nullptr) return inputs;
  if (!alone_) {
    alone_.emplace(device, problem.of_one_device(), item.placement, host.inputs());
    alone_hash_ = alone_->hash();
  }
  return *alone_;
}

DeviceInputs& Scene::inputs_of(Session& session) {
  return session.group() == nullptr ? inputs_of_one() : inputs;
}

Problem Scene::outputs_of(Session& session) const {
  return session.group() == nullptr ? problem.of_one_device() : problem;
}

void Scene::check_inputs(DeviceInputs& used) {
  if (used.hash() == (&used == &inputs ? input_hash : alone_hash_)) return;
  used.refill(host.inputs());
  throw WrongResult("it changed its inputs");
}

}  // namespace flashbench
