#include "case/case_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "attention/error.h"
#include "case/audits.h"
#include "case/background.h"
#include "case/distance.h"
#include "case/dump.h"
#include "case/room.h"
#include "case/support.h"
#include "measure/round_ceilings.h"
#include "measure/stats.h"
#include "providers/providers.h"
#include "verify/coarse.h"
#include "verify/expectation.h"
#include "verify/oracle.h"

namespace flashbench {

namespace {

Storage storage_of(const Provider& provider, const Problem& problem) {
  return {provider.scores_dtype(problem), provider.partials_dtype(problem),
          provider.accumulator(problem)};
}

// A case's inputs on host and device, and its oracles.
struct Scene {
  // `storage`: of a provider; the oracle for it is needed in any case.
  Scene(const Case& c, Device& d, const Storage& storage, const CaseRunOptions& o, const Watch& w,
        PhaseClock& p)
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

  // A backward pass starts from the exact O and logsumexp, rounded: the same values for every
  // provider.
  Inputs with_exact_forward(const Storage& storage) {
    if (problem.pass == Pass::backward) {
      oracle(storage).exact_forward(host.mutable_o(), host.mutable_logsumexp());
    }
    return host.inputs();
  }

  // The oracle for providers of this storage, made on first use.
  const Oracle& oracle(const Storage& storage) {
    auto& made = oracles[storage];
    if (made == nullptr) {
      const PhaseClock::Phase phase(clock, "reference");
      made = std::make_unique<Oracle>(problem, host.inputs(), storage,
                                      OracleBudget{.fp64_flops = options.verify.fp64_flops}, device,
                                      host.before_rounding());
    }
    return *made;
  }

  // Judges a provider's outputs by the oracle, and by what else is known about these inputs.
  Verdict judge(const Provider& provider, HostOutputs& outputs) {
    const PhaseClock::Phase phase(clock, "judge");
    const Storage storage = storage_of(provider, problem);
    Verdict verdict = oracle(storage).judge(outputs.view());
    if (!verdict.passed()) return verdict;
    verdict.reason =
        broken_expectation(problem, item.inputs, storage, host.inputs(), outputs.view());
    if (!verdict.reason.empty()) verdict.status = Verdict::Status::failed;
    if (verdict.passed() && is_remarkable(verdict, problem.dtype)) {
      verdict.coarse = why_coarse(oracle({}).judge(outputs.view()), problem.dtype, storage);
    }
    return verdict;
  }

  // Where several GPUs share the case, rows are in the memory of the GPU that has them. One alone
  // gets all of them in its own: the links would slow it down.
  DeviceInputs& inputs_of_one() {
    if (!problem.gpus || device.cuda_ranks() == nullptr) return inputs;
    if (!alone) {
      alone.emplace(device, problem.of_one_device(), item.placement, host.inputs());
      alone_hash = alone->hash();
    }
    return *alone;
  }
  DeviceInputs& inputs_of(Session& session) {
    return session.group() == nullptr ? inputs_of_one() : inputs;
  }
  Problem outputs_of(Session& session) const {
    return session.group() == nullptr ? problem.of_one_device() : problem;
  }

  void check_inputs(DeviceInputs& used) {
    if (used.hash() == (&used == &inputs ? input_hash : alone_hash)) return;
    used.refill(host.inputs());
    throw WrongResult("it changed its inputs");
  }

  const Case& item;
  Device& device;
  const CaseRunOptions& options;
  const Watch& watch;
  PhaseClock& clock;
  Problem problem;
  HostTensors host;
  std::map<Storage, std::unique_ptr<Oracle>> oracles;
  DeviceInputs inputs;
  int64_t input_bytes;  // without guard bands
  uint64_t input_hash;

 private:
  std::optional<DeviceInputs> alone;
  uint64_t alone_hash = 0;
};

Scene make_scene(const Case& item, Device& device, const Storage& storage,
                 const CaseRunOptions& options, const Watch& watch, PhaseClock& clock) {
  const PhaseClock::Phase phase(clock, "inputs");
  return Scene(item, device, storage, options, watch, clock);
}

// The state of one provider in the case.
struct Attempt {
  const Provider* provider = nullptr;
  int index = 0;  // index in the list
  Record record;
  std::unique_ptr<Session> session;
  DeviceInputs* inputs = nullptr;  // the scene's
  std::unique_ptr<DeviceOutputs> outputs;
  std::unique_ptr<DeviceOutputs> outputs_of_parts;  // of runs that are not whole
  std::unique_ptr<HostOutputs> verified_outputs;
  uint64_t verified_hash = 0;  // of the device's outputs at the time they were copied

  bool alive() const { return session != nullptr; }

  void end(Status status, std::string reason) {
    record.status = status;
    record.reason = std::move(reason);
    withdraw_times(record);
    withdraw_verdict();
    session.reset();
    outputs.reset();
    outputs_of_parts.reset();
  }

 private:
  // Removes a verdict that the outputs passed, because the row did not end well after all.
  void withdraw_verdict() {
    if (!record.verdict.passed()) return;
    if (record.status == Status::failed) {
      record.verdict.status = Verdict::Status::failed;
      record.verdict.reason = record.reason;
    } else {
      record.verdict = {};
    }
  }
};

// Runs `work` in a phase; an exception becomes the attempt's status. The provider counts as at work
// until its session has ended.
template <typename Work>
void guarded(Attempt& attempt, const Scene& scene, const char* phase, Work work) {
  const AtWork at_work(scene.watch, attempt.index);
  try {
    const PhaseClock::Phase in(scene.clock, phase);
    work();
  } catch (const LeftRunning& error) {
    attempt.end(Status::failed, error.what());
    tell_left_running(scene.watch, attempt.index);
  } catch (const WrongResult& error) {
    attempt.end(Status::failed, error.what());
  } catch (const Unsupported& error) {
    attempt.end(Status::unsupported, error.what());
  } catch (const OutOfMemory& error) {
    attempt.end(Status::out_of_memory, error.what());
  } catch (const std::bad_alloc&) {
    attempt.end(Status::out_of_memory, "the host ran out of memory");
  } catch (const FileError&) {
    throw;
  } catch (const std::exception& error) {
    attempt.end(Status::error, error.what());
  }
  attempt.record.wall.add(scene.clock.take());
}

void require_passed(const Verdict& verdict) {
  if (!verdict.passed()) throw WrongResult(verdict.reason);
}

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

HostOutputs take_outputs(const DeviceOutputs& outputs, Scene& scene) {
  const PhaseClock::Phase phase(scene.clock, "outputs");
  return take_outputs(outputs);
}

// Checks for background work that a provider's run has started.
class Quiet {
 public:
  Quiet(const Attempt& attempt, const Scene& scene)
      : watched_(scene.device.info().kind == DeviceKind::cpu),
        is_plugin_(attempt.provider->name().starts_with("plugin:")) {
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

std::unique_ptr<DeviceOutputs> make_outputs(const Attempt& attempt, const Scene& scene) {
  return std::make_unique<DeviceOutputs>(
      scene.device, scene.outputs_of(*attempt.session), scene.item.placement,
      attempt.provider->gives_logsumexp(),
      output_format(*attempt.provider, scene.problem, scene.host.inputs()));
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
  attempt.session->run(attempt.inputs->view(), attempt.outputs->view());
  device.synchronize();
  attempt.record.kernel = attempt.session->kernel();  // another program's is known only now
  attempt.record.kernels = device.kernels_of(
      [&] { attempt.session->run(attempt.inputs->view(), attempt.outputs->view()); });

  const MemoryUsage& peak = device.peak();
  if (device.counts_memory()) {
    attempt.record.memory =
        MemoryReport{{.input = scene.input_bytes,
                      .output = peak.output - before.output - attempt.outputs->guard_bytes(),
                      .workspace = peak.workspace - before.workspace},
                     device.growth()};
  }
  attempt.verified_outputs = std::make_unique<HostOutputs>(take_outputs(*attempt.outputs, scene));
  attempt.verified_hash = attempt.outputs->hash();
  scene.check_inputs(*attempt.inputs);
  attempt.record.verdict = scene.judge(*attempt.provider, *attempt.verified_outputs);
  require_passed(attempt.record.verdict);
  if (attempt.outputs->hash() != attempt.verified_hash) {
    throw WrongResult("its outputs changed after it had returned");
  }
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

// The last checks of a provider.
void audit(Attempt& attempt, Scene& scene) {
  if (!attempt.alive()) return;
  guarded(attempt, scene, "audit", [&] {
    const Quiet quiet(attempt, scene);
    require_nothing_behind(audited(attempt, scene));
    require_fresh_outputs(audited(attempt, scene));
    require_complete_parts(audited(attempt, scene));
    quiet.require();
  });
}

Attempt start(const Provider& provider, int index, const Case& item, Scene& scene) {
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

// Work of an attempt that writes all of `outputs`; `what` names it where it does not.
Contender timed(const Attempt& attempt, const Scene& scene, DeviceOutputs& outputs,
                std::string_view what, std::function<void()> run) {
  return {
      .at_work = [&](bool working) { tell(scene.watch, working ? attempt.index : -1); },
      .before = [&outputs] { outputs.poison(); },
      .run = std::move(run),
      .after =
          [&outputs, what] {
            const int64_t unwritten = outputs.unwritten_elements();
            if (unwritten == 0) return;
            throw WrongResult(fmt::format("{} left {} output elements unwritten", what, unwritten));
          }};
}

Contender timed(Attempt& attempt, Scene& scene) {
  return timed(attempt, scene, *attempt.outputs, "a timed run",
               [&] { attempt.session->run(attempt.inputs->view(), attempt.outputs->view()); });
}

// A part of the run. Rounding writes no outputs.
Contender timed(Attempt& attempt, Scene& scene, RunPart part) {
  DeviceOutputs& outputs = *attempt.outputs_of_parts;
  Contender contender =
      timed(attempt, scene, outputs, "a timed run of the attention alone", [&attempt, part] {
        attempt.session->run_part(part, attempt.inputs->view(), attempt.outputs_of_parts->view());
      });
  if (part == RunPart::rounding) contender.before = contender.after = [] {};
  contender.prolongs = false;
  return contender;
}

// The parts to time; none if there is no memory for what they write.
std::vector<RunPart> timed_parts(Attempt& attempt, const Scene& scene) {
  const std::vector<RunPart> parts = attempt.session->parts();
  try {
    if (!parts.empty()) attempt.outputs_of_parts = make_outputs(attempt, scene);
    return parts;
  } catch (const OutOfMemory&) {
    return {};
  }
}

// Verifies the outputs of the last timed run: equal to the verified ones bit for bit, or judged
// again.
void verify_timed(Attempt& attempt, Scene& scene) {
  scene.check_inputs(*attempt.inputs);
  if (attempt.outputs->hash() == attempt.verified_hash) return;
  HostOutputs outputs = take_outputs(*attempt.outputs, scene);
  attempt.record.verdict = scene.judge(*attempt.provider, outputs);
  require_passed(attempt.record.verdict);
}

void take_energy(Attempt& attempt, Scene& scene) {
  const AtWork at_work(scene.watch, attempt.index);
  const MeasureOptions& options = scene.options.measure;
  if (options.energy_seconds == 0 || !scene.device.energy()) return;
  const PhaseClock::Phase phase(scene.clock, "energy");
  const Replay replay = scene.device.replayable(
      [&] { attempt.session->run(attempt.inputs->view(), attempt.outputs->view()); });
  attempt.record.energy =
      measure_energy(scene.device, replay.launch, options.energy_seconds, scene.watch.interrupted);
}

// Times whole runs, only their computing and only their copying in turns, so that a machine that
// slows down slows all three.
void measure_group(Attempt& attempt, Scene& scene) {
  GroupSession* group = attempt.session->group();
  if (group == nullptr) return;
  const AtWork at_work(scene.watch, attempt.index);
  const PhaseClock::Phase phase(scene.clock, "group");
  constexpr int kRounds = 9;
  std::map<GroupPart, std::vector<double>> seconds;
  std::vector<std::vector<double>> of_ranks(static_cast<size_t>(scene.problem.gpus.value()));
  GroupReport report;
  report.shares_gpus = scene.device.info().ranks_share_gpus;
  report.gpus_at_work = group->gpus_at_work();
  constexpr std::array kParts{GroupPart::everything, GroupPart::computing, GroupPart::copying};
  // The first run of a part may load kernels, which would wait for a held stream.
  for (const GroupPart part : kParts) {
    group->only(part);
    attempt.session->run(attempt.inputs->view(), attempt.outputs->view());
    scene.device.synchronize();
  }
  for (int round = 0; round < kRounds && !scene.watch.interrupted(); ++round) {
    for (const GroupPart part : kParts) {
      group->only(part);
      seconds[part].push_back(scene.device.time(
          [&] { attempt.session->run(attempt.inputs->view(), attempt.outputs->view()); }));
      if (part != GroupPart::everything) continue;
      report.sent_bytes = group->sent_bytes();
      const std::vector<double> ranks = group->rank_seconds();
      for (size_t rank = 0; rank < ranks.size(); ++rank) of_ranks[rank].push_back(ranks[rank]);
    }
  }
  group->only(GroupPart::everything);
  if (seconds[GroupPart::copying].empty()) return;
  for (const auto& rank : of_ranks) report.rank_seconds.push_back(median(rank));
  report.everything = median(seconds[GroupPart::everything]);
  report.computing = median(seconds[GroupPart::computing]);
  report.copying = median(seconds[GroupPart::copying]);
  attempt.record.group = std::move(report);
}

// What is timed beside the providers: the GEMM, and what bounds a case whose limit is memory.
class Beside {
 public:
  // `several_devices`: whether any of the providers shares the work.
  Beside(Scene& scene, GemmCeiling& gemm, bool several_devices) : gemm_(gemm) {
    try {
      outputs_.emplace(scene.device, scene.problem.of_one_device(), scene.item.placement);
      works_ = round_ceilings(scene.device, scene.problem, scene.inputs_of_one().view(),
                              outputs_->view());
      if (several_devices) add_same_work(scene);
    } catch (const OutOfMemory&) {
      // The row of the providers does not depend on them.
    }
  }

  std::vector<Contender> contenders() const {
    std::vector<Contender> all{Contender::of([this] { gemm_.run(); })};
    for (const CeilingWork& work : works_) {
      all.push_back(Contender::of(work.run));
      all.back().prolongs = false;
    }
    return all;
  }

  // Adds what was measured; `timings` are those of contenders().
  void add_to(Record& record, std::span<const Timing> timings) const {
    record.gemm = timings.front().measurement;
    record.gemm_flops = gemm_.flops();
    for (size_t i = 0; i < works_.size(); ++i) {
      const Measurement& measured = timings[i + 1].measurement;
      if (measured.seconds.empty()) continue;
      record.round_ceilings.push_back(
          {works_[i].name, works_[i].unit, works_[i].description, works_[i].work, measured});
    }
  }

 private:
  void add_same_work(Scene& scene) {
    share_ = make_share_session(scene.problem, scene.device);
    if (share_ == nullptr) return;
    shared_outputs_.emplace(scene.device, scene.problem, scene.item.placement);
    const auto run = [this, &scene] { share_->run(scene.inputs.view(), shared_outputs_->view()); };
    run();  // copies what the others have
    share_->group()->only(GroupPart::computing);
    works_.push_back(
        {std::string(kSameWork), "run/s",
         fmt::format("one device alone with the work of one of {}", *scene.problem.gpus), 1, run});
  }

  GemmCeiling& gemm_;
  std::optional<DeviceOutputs> outputs_, shared_outputs_;
  std::unique_ptr<Session> share_;
  std::vector<CeilingWork> works_;
};

void add_part(Record& record, RunPart part, const Timing& timing) {
  record.wall.add("parts", timing.warmup_seconds + timing.sample_seconds);
  if (timing.error) std::rethrow_exception(timing.error);
  if (!timing.measurement.seconds.empty()) record.parts.push_back({part, timing.measurement});
}

void time_together(std::vector<Attempt>& attempts, Scene& scene, GemmCeiling& gemm, uint64_t seed) {
  std::vector<Attempt*> alive;
  std::vector<Contender> contenders;
  for (Attempt& attempt : attempts) {
    if (!attempt.alive()) continue;
    alive.push_back(&attempt);
    contenders.push_back(timed(attempt, scene));
  }
  if (alive.empty()) return;
  std::vector<std::pair<Attempt*, RunPart>> parts;
  for (Attempt* attempt : alive) {
    for (const RunPart part : timed_parts(*attempt, scene)) {
      parts.emplace_back(attempt, part);
      contenders.push_back(timed(*attempt, scene, part));
    }
  }
  const bool several_devices = std::ranges::any_of(
      alive, [](const Attempt* attempt) { return attempt->session->group() != nullptr; });
  const Beside beside(scene, gemm, several_devices);
  for (Contender& contender : beside.contenders()) contenders.push_back(std::move(contender));

  const std::vector<Timing> timings = measure_interleaved(
      scene.device, contenders, scene.options.measure, seed, scene.watch.interrupted);
  const std::span<const Timing> of_parts = std::span(timings).subspan(alive.size(), parts.size());
  const std::span<const Timing> ceilings = std::span(timings).subspan(alive.size() + parts.size());
  for (const Timing& ceiling : ceilings) {
    alive.front()->record.wall.add(&ceiling == &ceilings.front() ? "gemm" : "round_ceilings",
                                   ceiling.warmup_seconds + ceiling.sample_seconds);
  }
  for (size_t i = 0; i < alive.size(); ++i) {
    Attempt& attempt = *alive[i];
    attempt.record.wall.add("warm_up", timings[i].warmup_seconds);
    attempt.record.wall.add("samples", timings[i].sample_seconds);
    guarded(attempt, scene, "verify", [&] {
      if (timings[i].error) std::rethrow_exception(timings[i].error);
      if (timings[i].measurement.seconds.empty()) {
        return attempt.end(Status::skipped, "interrupted before it was timed");
      }
      attempt.record.measurement = timings[i].measurement;
      for (size_t j = 0; j < parts.size(); ++j) {
        if (parts[j].first == &attempt) add_part(attempt.record, parts[j].second, of_parts[j]);
      }
      beside.add_to(attempt.record, ceilings);
      verify_timed(attempt, scene);
      measure_group(attempt, scene);
      take_energy(attempt, scene);
    });
  }
}

void compare_with_naive(std::vector<Attempt>& attempts, Scene& scene) {
  const auto naive = std::find_if(attempts.begin(), attempts.end(), [](const Attempt& attempt) {
    return attempt.alive() && attempt.provider->name() == "naive";
  });
  if (naive == attempts.end()) return;
  for (Attempt& attempt : attempts) {
    if (!attempt.alive() || &attempt == &*naive) continue;
    const PhaseClock::Phase phase(scene.clock, "distance");
    attempt.record.from_naive = distance(scene.problem, *attempt.verified_outputs,
                                         *naive->verified_outputs, *scene.device.stream().threads);
  }
}

std::vector<Record> records_of(std::vector<Attempt>& attempts) {
  std::vector<Record> records;
  for (Attempt& attempt : attempts) records.push_back(std::move(attempt.record));
  return records;
}

// The records of a case that could not even be set up.
std::vector<Record> all_ended(const Case& item, const std::vector<const Provider*>& providers,
                              Status status, const std::string& reason) {
  std::vector<Record> records;
  for (const Provider* provider : providers) {
    Record record;
    record.item = item;
    record.provider = provider->name();
    record.program = provider->program();
    record.status = status;
    record.reason = reason;
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace

std::vector<Record> run_case(const Case& item, const std::vector<const Provider*>& providers,
                             Device& device, GemmCeiling* gemm, const CaseRunOptions& options,
                             const Watch& watch) {
  if (providers.empty()) return {};
  if (watch.interrupted()) return all_ended(item, providers, Status::skipped, "interrupted");
  if (const std::string why = why_no_room(item.problem, device.info().kind); !why.empty()) {
    return all_ended(item, providers, Status::skipped, why);
  }
  try {
    PhaseClock clock;
    Scene scene = make_scene(item, device, storage_of(*providers.front(), item.problem), options,
                             watch, clock);
    if (!options.dump.empty()) dump_inputs(options.dump, scene.problem, scene.host.inputs());
    std::vector<Attempt> attempts;
    for (size_t i = 0; i < providers.size(); ++i) {
      attempts.push_back(start(*providers[i], static_cast<int>(i), item, scene));
    }
    if (options.time && gemm != nullptr && !is_left_running(watch)) {
      time_together(attempts, scene, *gemm, item.inputs.seed);
    }
    for (Attempt& attempt : attempts) audit(attempt, scene);
    compare_with_naive(attempts, scene);
    for (Attempt& attempt : attempts) {
      guarded(attempt, scene, "end", [&] { attempt.session.reset(); });
    }
    return records_of(attempts);
  } catch (const OutOfMemory& error) {
    return all_ended(item, providers, Status::out_of_memory, error.what());
  } catch (const std::bad_alloc&) {
    return all_ended(item, providers, Status::out_of_memory,
                     "the host ran out of memory for the inputs and their reference");
  }
}

}  // namespace flashbench
