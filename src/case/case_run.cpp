#include "case/case_run.h"

#include <algorithm>
#include <new>

#include "attention/error.h"
#include "case/distance.h"
#include "case/dump.h"
#include "case/room.h"
#include "case/time_together.h"
#include "case/verify_provider.h"

namespace flashbench {

namespace {

Scene make_scene(const Case& item, Device& device, const Storage& storage,
                 const CaseRunOptions& options, const Watch& watch, PhaseClock& clock) {
  const PhaseClock::Phase phase(clock, "inputs");
  return Scene(item, device, storage, options, watch, clock);
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
      attempts.push_back(verify_provider(*providers[i], static_cast<int>(i), scene));
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
