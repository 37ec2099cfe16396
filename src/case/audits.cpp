#include "case/audits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/half.h"
#include "case/rotated_heads.h"

namespace flashbench {

namespace {

constexpr int kColdEvery = 4;

// The time of the check itself varies by some 10 us, and more through another program. The shortest
// of a few checks is free of disturbance by other processes. A time that is small beside the run
// changes no figure.
constexpr int kLooksBehind = 5;
constexpr double kMostSecondsBehind = 50e-6;
constexpr double kMostShareBehind = 0.02;

double largest_lambda(const Verdict& verdict) {
  double lambda = 0;
  for (const TensorError& error : verdict.tensors) lambda = std::max(lambda, error.lambda);
  return lambda;
}

// The tensors whose sign follows that of V or dO.
std::vector<TensorView> signed_tensors(const Problem& p, const Outputs& outputs) {
  if (p.pass == Pass::forward) return {outputs.o};
  return {outputs.dq, outputs.dk, outputs.dv};
}

bool same_value(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

bool same_values(const ConstTensorView& a, const ConstTensorView& b) {
  for (int64_t i = 0; i < a.elements(); ++i) {
    if (!same_value(load_element(a.data, a.dtype, i), load_element(b.data, b.dtype, i))) {
      return false;
    }
  }
  return true;
}

// Compares values, not bits: -0 equals 0, and all NaNs are equal.
bool same_values(const Problem& p, const Outputs& a, const Outputs& b) {
  const std::vector<TensorView> left = signed_tensors(p, a), right = signed_tensors(p, b);
  for (size_t i = 0; i < left.size(); ++i) {
    if (!same_values(left[i], right[i])) return false;
  }
  if (a.logsumexp == nullptr) return true;
  return std::equal(a.logsumexp, a.logsumexp + p.query_rows(), b.logsumexp, same_value);
}

// Runs once more on poisoned outputs.
void run_again(const Audited& a) {
  a.outputs.poison();
  a.session.run(a.inputs.view(), a.outputs.view());
  a.device.synchronize();
}

// The same in parts, one after the other.
void run_in_parts(const Audited& a) {
  a.outputs.poison();
  for (const RunPart part : a.session.parts()) {
    a.session.run_part(part, a.inputs.view(), a.outputs.view());
  }
  a.device.synchronize();
}

void require_inputs(const Audited& a, uint64_t hash) {
  if (a.inputs.hash() != hash) throw WrongResult("it changed its inputs");
}

// Runs once more on what change() makes of the case's inputs, and restores them: other providers
// run on them, too. Throws WrongResult if the run changed them.
void run_on_changed_inputs(const Audited& a, const std::function<void()>& change) {
  change();
  const uint64_t hash = a.inputs.hash();
  try {
    a.session.prepare_inputs(a.inputs.view());
    run_again(a);
    require_inputs(a, hash);
  } catch (...) {
    a.inputs.refill(a.host_inputs);
    throw;
  }
  a.inputs.refill(a.host_inputs);
}

// Throws WrongResult with a reason that begins so, unless these outputs are those of the verified
// run, or at least as right.
void require_right_outputs(const Audited& a, HostOutputs& found, std::string_view reason) {
  if (found == a.verified || same_values(a.problem, found.view(), a.verified.view())) return;
  if (const Verdict verdict = a.judge(found); !verdict.passed()) {
    throw WrongResult(fmt::format("{}{}", reason, verdict.reason));
  }
}

// The same of the outputs on the device.
void require_verified_outputs(const Audited& a, std::string_view reason) {
  if (a.outputs.hash() == a.verified_hash) return;
  HostOutputs found = take_outputs(a.outputs);
  require_right_outputs(a, found, reason);
}

}  // namespace

HostOutputs take_outputs(const DeviceOutputs& outputs) {
  HostOutputs taken = outputs.to_host();
  if (const std::string damage = outputs.damage(); !damage.empty()) throw WrongResult(damage);
  return taken;
}

Determinism repeat_runs(const Audited& a, int runs, const std::function<bool()>& interrupted,
                        Verdict& failed) {
  Determinism result{Determinism::Kind::bitwise, 1, 0};
  while (result.runs < runs && !interrupted()) {
    ++result.runs;
    if (result.runs % kColdEvery == 0) a.device.evict_caches();
    run_again(a);
    if (a.outputs.hash() == a.verified_hash) continue;
    HostOutputs found = take_outputs(a.outputs);
    const Verdict verdict = a.judge(found);
    result.max_lambda = std::max(result.max_lambda, largest_lambda(verdict));
    result.kind = Determinism::Kind::bounded;
    if (verdict.passed()) continue;
    result.kind = Determinism::Kind::varies;
    failed = verdict;
    break;
  }
  return result;
}

void require_nothing_behind(const Audited& a) {
  const auto run = [&] { a.session.run(a.inputs.view(), a.outputs.view()); };
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kLooksBehind && least > kMostSecondsBehind; ++i) {
    least = std::min(least, a.device.seconds_behind(run));
  }
  if (least <= kMostSecondsBehind) return;
  if (least <= kMostShareBehind * a.device.time(run)) return;
  throw WrongResult(
      fmt::format("the device worked for {:.0f} us more after its stream was done: work on another "
                  "stream, which the time does not include",
                  least * 1e6));
}

void require_fresh_outputs(const Audited& a) {
  run_on_changed_inputs(a, [&] { a.inputs.negate(); });

  a.outputs.negate();
  require_verified_outputs(
      a, fmt::format("its outputs do not follow its inputs: with {} negated, and the outputs "
                     "negated back, ",
                     a.problem.pass == Pass::forward ? "V" : "dO"));
}

void require_fresh_probabilities(const Audited& a) {
  if (a.problem.pass != Pass::backward || !has_heads_to_rotate(a.problem)) return;
  const RotatedHeads rotated(a.problem, a.host_inputs);
  run_on_changed_inputs(a, [&] { a.inputs.refill(rotated.inputs()); });

  HostOutputs found = take_outputs(a.outputs);
  rotated.turn_back(found.view());
  require_right_outputs(a, found,
                        "its outputs do not follow its inputs: with heads rotated, and the outputs "
                        "rotated back, ");
}

void require_fresh_scores(const Audited& a) {
  if (a.problem.pass != Pass::forward) return;
  run_on_changed_inputs(a, [&] { a.inputs.refill_q_and_k(a.other_scores()); });

  HostOutputs found = take_outputs(a.outputs);
  if (const Verdict verdict = a.judge_other_scores(found); !verdict.passed()) {
    throw WrongResult(
        "its outputs do not follow its inputs: with the signs of half of the rows of Q and K "
        "flipped, " +
        verdict.reason);
  }
}

void require_complete_parts(const Audited& a) {
  if (a.session.parts().empty()) return;
  const uint64_t hash = a.inputs.hash();
  run_on_changed_inputs(a, [&] { a.inputs.poison(); });
  a.session.prepare_inputs(a.inputs.view());
  run_in_parts(a);
  require_inputs(a, hash);
  require_verified_outputs(
      a, "its parts do not compute what whole runs do: after a whole run on poison, ");
}

}  // namespace flashbench
