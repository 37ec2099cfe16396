#include "case/verify_provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "case/audits.h"
#include "case/background.h"
#include "case/dump.h"
#include "case/support.h"

namespace flashbench {

namespace {

// Asks whether the provider supports the case and prepares it. Both are timed, because the answer
// may already be part of the preparation.
void prepare(Attempt& attempt, Scene& scene) {
  const PhaseClock::Phase phase(scene.clock, "prepare");
  const auto start = std::chrono::steady_clock::now();
  if (const auto why = why_unsupported(*attempt.provider, scene.item, scene.device.info())) {
    throw Unsupported(*why);
  }
  attempt.session = attempt.provider->prepare(scene.problem, scene.device);
  if (GroupSession* group = attempt.session->group(); group != nullptr && scene.watch.steps) {
    group->show_on(*scene.watch.steps);
  }
  attempt.record.prepare_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Checks for background work that a provider's run has started.
class Quiet {
 public:
  Quiet(const Attempt& attempt, const Scene& scene)
      : watched_(scene.device.info().kind == DeviceKind::cpu),
        is_plugin_(is_plugin(attempt.provider->name())) {
    if (watched_) before_ = background_tasks();
  }

  // Throws LeftRunning. Tasks that were at work before are not the provider's, unless it is a
  // plugin, which may have started them when it was loaded.
  void require() const {
    if (!watched_) return;
    const std::string found = what_goes_on(before_, [this](const Task& task) {
      return is_plugin_ || std::none_of(before_.begin(), before_.end(), [&](const Task& known) {
               return known.thread == task.thread && known.at_work;
             });
    });
    if (!found.empty()) throw LeftRunning(found);
  }

 private:
  bool watched_, is_plugin_;
  std::vector<Task> before_;
};

// The number of elements that have the bits of poison: they are NaN, or unwritten. A run on other
// poison tells which. Throws WrongResult for unwritten ones.
int64_t count_poison_like(Attempt& attempt, Scene& scene) {
  const int64_t found = attempt.outputs->unwritten_elements();
  if (found == 0) return 0;
  attempt.outputs->poison_with_flipped_signs();
  attempt.run();
  scene.device.synchronize();
  const int64_t written = attempt.outputs->unwritten_elements();
  if (written >= found) return written;
  throw WrongResult(fmt::format("it left {} output elements unwritten", found - written));
}

// Prepares the provider, runs it once on poisoned outputs and judges what it wrote.
void prepare_and_verify(Attempt& attempt, Scene& scene) {
  Device& device = scene.device;
  const Quiet quiet(attempt, scene);
  const MemoryUsage before = device.used();
  device.reset_peak();
  device.watch_growth();

  prepare(attempt, scene);
  attempt.inputs = &scene.inputs_of(*attempt.session);
  attempt.outputs = make_outputs(attempt, scene);
  attempt.record.kernel = attempt.session->kernel();
  attempt.record.requested_bytes = attempt.session->requested_bytes();
  attempt.record.schedule = attempt.session->schedule();
  attempt.session->prepare_inputs(attempt.inputs->view());
  attempt.record.plan_seconds = attempt.session->plan_seconds();
  attempt.run();
  device.synchronize();
  attempt.record.kernel = attempt.session->kernel();  // another program's is known only now
  attempt.record.kernels = device.kernels_of([&] { attempt.run(); });

  const MemoryUsage& peak = device.peak();
  if (device.counts_memory()) {
    attempt.record.memory =
        MemoryReport{{.input = scene.input_bytes,
                      .output = peak.output - before.output - attempt.outputs->guard_bytes(),
                      .workspace = peak.workspace - before.workspace},
                     device.growth()};
  }
  // Hashed first: what is written while they are copied, by a thread that is late, changes them.
  attempt.verified_hash = attempt.outputs->hash();
  attempt.verified_outputs = std::make_unique<HostOutputs>(take_outputs(*attempt.outputs, scene));
  scene.check_inputs(*attempt.inputs);
  attempt.record.verdict = scene.judge(*attempt.provider, *attempt.verified_outputs);
  require_passed(attempt.record.verdict);
  if (attempt.outputs->hash() != attempt.verified_hash) {
    throw WrongResult("its outputs changed after it had returned");
  }
  attempt.poison_like = count_poison_like(attempt, scene);
  quiet.require();
  attempt.record.status = Status::ok;
}

void dump(Attempt& attempt, const Scene& scene) {
  if (scene.options.dump.empty() || !attempt.alive()) return;
  dump_outputs(scene.options.dump / attempt.provider->name(), scene.problem,
               attempt.verified_outputs->view());
}

Audited audited(Attempt& attempt, Scene& scene) {
  return {scene.problem,
          scene.device,
          *attempt.session,
          *attempt.inputs,
          scene.host.inputs(),
          *attempt.outputs,
          *attempt.verified_outputs,
          attempt.verified_hash,
          [&scene, provider = attempt.provider](HostOutputs& outputs) {
            return scene.judge(*provider, outputs);
          },
          [&scene]() -> const Inputs& { return scene.other_scores().inputs(); },
          [&scene, provider = attempt.provider](HostOutputs& outputs) {
            return scene.judge_other_scores(*provider, outputs);
          }};
}

void repeat(Attempt& attempt, Scene& scene) {
  Verdict failed;
  const Determinism determinism =
      repeat_runs(audited(attempt, scene), scene.options.repeat, scene.watch.interrupted, failed);
  attempt.record.determinism = determinism;
  scene.check_inputs(*attempt.inputs);
  if (determinism.kind != Determinism::Kind::varies) return;
  attempt.record.verdict = failed;
  throw WrongResult(fmt::format("the outputs of run {} differ from the first run: {}",
                                determinism.runs, failed.reason));
}

}  // namespace

Attempt verify_provider(const Provider& provider, int index, Scene& scene) {
  const Case& item = scene.item;
  Attempt attempt;
  attempt.provider = &provider;
  attempt.index = index;
  attempt.record.item = item;
  attempt.record.provider = provider.name();
  attempt.record.program = provider.program();
  if (item.problem.is_quantized()) {
    attempt.record.accumulator = provider.accumulator(item.problem).text();
    attempt.record.output_dtype = name(provider.output_dtype(item.problem));
  }
  if (scene.watch.interrupted()) {
    attempt.end(Status::skipped, "interrupted");
    return attempt;
  }
  if (is_left_running(scene.watch)) {
    attempt.end(Status::skipped, "another provider left something running");
    return attempt;
  }
  guarded(attempt, scene, "verify", [&] {
    prepare_and_verify(attempt, scene);
    if (scene.options.repeat > 1) repeat(attempt, scene);
  });
  dump(attempt, scene);
  return attempt;
}

void audit(Attempt& attempt, Scene& scene) {
  if (!attempt.alive()) return;
  guarded(attempt, scene, "audit", [&] {
    const Quiet quiet(attempt, scene);
    require_nothing_behind(audited(attempt, scene));
    require_fresh_outputs(audited(attempt, scene));
    require_fresh_scores(audited(attempt, scene));
    require_fresh_probabilities(audited(attempt, scene));
    require_complete_parts(audited(attempt, scene));
    quiet.require();
  });
}

}  // namespace flashbench
