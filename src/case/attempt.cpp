#include "case/attempt.h"

#include <new>

#include "attention/error.h"
#include "case/audits.h"
#include "case/support.h"

namespace flashbench {

namespace {

// Removes a verdict that the outputs passed, because the row did not end well after all.
void withdraw_verdict(Record& record) {
  if (!record.verdict.passed()) return;
  if (record.status == Status::failed) {
    record.verdict.status = Verdict::Status::failed;
    record.verdict.reason = record.reason;
  } else {
    record.verdict = {};
  }
}

}  // namespace

void Attempt::end(Status status, std::string reason) {
  record.status = status;
  record.reason = std::move(reason);
  withdraw_times(record);
  withdraw_verdict(record);
  session.reset();
  outputs.reset();
  outputs_of_parts.reset();
}

void Attempt::run() {
  session->run(inputs->view(), outputs->view());
}

void guarded(Attempt& attempt, const Scene& scene, const char* phase,
             const std::function<void()>& work) {
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

std::unique_ptr<DeviceOutputs> make_outputs(const Attempt& attempt, const Scene& scene) {
  return std::make_unique<DeviceOutputs>(
      scene.device, scene.outputs_of(*attempt.session), scene.item.placement,
      attempt.provider->gives_logsumexp(),
      output_format(*attempt.provider, scene.problem, scene.host.inputs()));
}

HostOutputs take_outputs(const DeviceOutputs& outputs, const Scene& scene) {
  const PhaseClock::Phase phase(scene.clock, "outputs");
  return take_outputs(outputs);
}

void require_passed(const Verdict& verdict) {
  if (!verdict.passed()) throw WrongResult(verdict.reason);
}

}  // namespace flashbench
