#include "case/time_together.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "case/audits.h"
#include "case/beside.h"
#include "measure/stats.h"

namespace flashbench {

namespace {

// Work of an attempt that writes all of `outputs`; `what` names it where it does not.
Contender timed(const Attempt& attempt, const Scene& scene, DeviceOutputs& outputs,
                std::string_view what, std::function<void()> run) {
  return {
      .at_work = [&](bool working) { tell(scene.watch, working ? attempt.index : -1); },
      .before = [&outputs] { outputs.poison(); },
      .run = std::move(run),
      .after =
          [&attempt, &outputs, what] {
            const int64_t unwritten = outputs.unwritten_elements() - attempt.poison_like;
            if (unwritten <= 0) return;
            throw WrongResult(fmt::format("{} left {} output elements unwritten", what, unwritten));
          }};
}

// All providers share the inputs. A plugin that writes to them is found at once: at the end nobody
// could say who did so, and others would have run on them.
Contender timed(Attempt& attempt, Scene& scene) {
  Contender contender =
      timed(attempt, scene, *attempt.outputs, "a timed run", [&] { attempt.run(); });
  if (is_plugin(attempt.provider->name())) {
    contender.after = [&, require_written = contender.after] {
      require_written();
      scene.check_inputs(*attempt.inputs);
    };
  }
  return contender;
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
  const Replay replay = scene.device.replayable([&] { attempt.run(); });
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
    attempt.run();
    scene.device.synchronize();
  }
  for (int round = 0; round < kRounds && !scene.watch.interrupted(); ++round) {
    for (const GroupPart part : kParts) {
      group->only(part);
      seconds[part].push_back(scene.device.time([&] { attempt.run(); }));
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

std::vector<Attempt*> alive_of(std::vector<Attempt>& attempts) {
  std::vector<Attempt*> alive;
  for (Attempt& attempt : attempts) {
    if (attempt.alive()) alive.push_back(&attempt);
  }
  return alive;
}

bool shares_work(const Attempt* attempt) {
  return attempt->session->group() != nullptr;
}

struct PartOfAttempt {
  Attempt* attempt;
  RunPart part;
};

std::vector<PartOfAttempt> parts_of(const std::vector<Attempt*>& attempts, const Scene& scene) {
  std::vector<PartOfAttempt> parts;
  for (Attempt* attempt : attempts) {
    for (const RunPart part : timed_parts(*attempt, scene)) parts.push_back({attempt, part});
  }
  return parts;
}

void add_part(Record& record, RunPart part, const Timing& timing) {
  record.wall.add("parts", timing.warmup_seconds + timing.sample_seconds);
  if (timing.error) std::rethrow_exception(timing.error);
  if (!timing.measurement.seconds.empty()) record.parts.push_back({part, timing.measurement});
}

}  // namespace

void time_together(std::vector<Attempt>& attempts, Scene& scene, GemmCeiling& gemm, uint64_t seed) {
  const std::vector<Attempt*> alive = alive_of(attempts);
  if (alive.empty()) return;
  const std::vector<PartOfAttempt> parts = parts_of(alive, scene);
  const Beside beside(scene, gemm, std::ranges::any_of(alive, shares_work));

  std::vector<Contender> contenders;
  for (Attempt* attempt : alive) contenders.push_back(timed(*attempt, scene));
  for (const auto& [attempt, part] : parts) contenders.push_back(timed(*attempt, scene, part));
  for (Contender& contender : beside.contenders()) contenders.push_back(std::move(contender));
  const std::vector<Timing> timings = measure_interleaved(
      scene.device, contenders, scene.options.measure, seed, scene.watch.interrupted);
  const std::span<const Timing> all(timings),
      of_parts = all.subspan(alive.size(), parts.size()),
      of_ceilings = all.subspan(alive.size() + parts.size());

  for (const Timing& ceiling : of_ceilings) {
    alive.front()->record.wall.add(&ceiling == &of_ceilings.front() ? "gemm" : "round_ceilings",
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
        if (parts[j].attempt == &attempt) add_part(attempt.record, parts[j].part, of_parts[j]);
      }
      beside.add_to(attempt.record, of_ceilings);
      verify_timed(attempt, scene);
      measure_group(attempt, scene);
      take_energy(attempt, scene);
    });
  }
}

}  // namespace flashbench
