#include "tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "device/device_tensors.h"
#include "inputs/inputs.h"
#include "measure/sampler.h"
#include "measure/stats.h"
#include "providers/providers.h"
#include "verify/oracle.h"

namespace flashbench {

namespace {

using kernels::AttentionKernel;
using kernels::BlockSizes;

constexpr double kWorthwhile = 0.01;  // faster than the table's entry by more than this

std::vector<const AttentionKernel*> tunable_kernels(
    std::span<const AttentionKernel* const> all_kernels, DeviceKind device,
    std::string_view family) {
  std::vector<const AttentionKernel*> found;
  for (const AttentionKernel* kernel : all_kernels) {
    if (kernel->device != device || kernel->candidates == nullptr) continue;
    if (family.empty() || kernel->family == family) found.push_back(kernel);
  }
  return found;
}

Problem tuning_problem(const AttentionKernel& kernel, const TuneOptions& options, Mask mask,
                       int64_t head_dim) {
  Problem p;
  p.pass = kernel.pass;
  p.dtype = Dtype::bf16;
  p.mask = mask;
  p.batch = std::max<int64_t>(1, options.total_tokens / options.length);
  p.q_heads = p.kv_heads = std::max<int64_t>(1, options.hidden / head_dim);
  p.q_len = p.kv_len = options.length;
  p.head_dim = head_dim;
  return p;
}

// A problem's tensors and reference, for all kernels of a pass.
struct Setting {
  Setting(const Problem& p, Device& d)
      : problem(p),
        device(d),
        host(p, {}, *d.stream().threads),
        oracle(p, host.inputs(), Dtype::fp32, {}, d),
        inputs(d, p, Placement::contiguous, with_forward()),
        outputs(d, p, Placement::contiguous) {}

  Inputs with_forward() {
    if (problem.pass == Pass::backward) {
      oracle.exact_forward(host.mutable_o(), host.mutable_logsumexp());
    }
    return host.inputs();
  }

  // Runs the session and returns what is wrong with its outputs; empty if they are right.
  std::string what_is_wrong(Session& session) {
    outputs.poison();
    session.run(inputs.view(), outputs.view());
    device.synchronize();
    HostOutputs found = outputs.to_host();
    return oracle.judge(found.view()).reason;
  }

  Problem problem;
  Device& device;
  HostTensors host;
  Oracle oracle;
  DeviceInputs inputs;
  DeviceOutputs outputs;
};

Tuned tune_one(const AttentionKernel& kernel, Setting& setting, const MeasureOptions& measure,
               const std::function<bool()>& interrupted) {
  const DeviceInfo& info = setting.device.info();
  Tuned tuned{&kernel, setting.problem, {}, {}};
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Contender> contenders;
  std::vector<size_t> timed;  // indices into tuned.candidates
  for (const BlockSizes& blocks : kernel.candidates(setting.problem, info)) {
    TunedCandidate candidate{blocks, kernel.variant({setting.problem, info, blocks}), 0, ""};
    try {
      auto session = make_kernel_session(kernel, blocks, setting.problem, setting.device);
      candidate.reason = setting.what_is_wrong(*session);
      if (candidate.reason.empty()) {
        contenders.push_back(Contender::of([&setting, session = session.get()] {
          session->run(setting.inputs.view(), setting.outputs.view());
        }));
        timed.push_back(tuned.candidates.size());
        sessions.push_back(std::move(session));
      }
    } catch (const std::exception& error) {
      candidate.reason = error.what();
    }
    tuned.candidates.push_back(std::move(candidate));
  }

  const auto timings = measure_interleaved(setting.device, contenders, measure, 1, interrupted);
  for (size_t i = 0; i < timed.size(); ++i) {
    TunedCandidate& candidate = tuned.candidates[timed[i]];
    try {
      if (timings[i].error) std::rethrow_exception(timings[i].error);
      candidate.median =
          timings[i].measurement.seconds.empty() ? 0 : median(timings[i].measurement.seconds);
    } catch (const std::exception& error) {
      candidate.reason = error.what();
    }
  }
  std::stable_sort(tuned.candidates.begin(), tuned.candidates.end(),
                   [](const TunedCandidate& a, const TunedCandidate& b) {
                     return a.median > 0 && (b.median == 0 || a.median < b.median);
                   });
  tuned.best = best_blocks(tuned.candidates, kernel.choose(setting.problem, info));
  return tuned;
}

std::string row_key(const AttentionKernel& kernel, const Problem& p, const DeviceInfo& device) {
  return fmt::format("{{\"{}\", {}, Pass::{}, {}, {},", kernel.family, device.compute_capability,
                     name(p.pass), p.head_dim, p.mask != Mask::none);
}

}  // namespace

std::optional<BlockSizes> best_blocks(const std::vector<TunedCandidate>& fastest_first,
                                      const BlockSizes& now) {
  if (fastest_first.empty() || fastest_first.front().median == 0) return std::nullopt;
  const TunedCandidate& fastest = fastest_first.front();
  for (const TunedCandidate& candidate : fastest_first) {
    const bool close = candidate.median <= (1 + kWorthwhile) * fastest.median;
    if (candidate.blocks == now && candidate.median > 0 && close) return now;
  }
  return fastest.blocks;
}

std::vector<Tuned> tune(Device& device, std::span<const AttentionKernel* const> kernels,
                        const TuneOptions& options, const std::function<void(const Tuned&)>& report,
                        const std::function<bool()>& interrupted) {
  const auto tunable = tunable_kernels(kernels, device.info().kind, options.family);
  std::vector<Tuned> all;
  for (const Pass pass : kPasses) {
    for (const int64_t head_dim : options.head_dims) {
      for (const Mask mask : options.masks) {
        std::unique_ptr<Setting> setting;  // created for the first kernel that needs it
        for (const AttentionKernel* kernel : tunable) {
          const Problem problem = tuning_problem(*kernel, options, mask, head_dim);
          if (kernel->pass != pass || interrupted()) continue;
          if (kernel->why_unsupported(problem, device.info())) continue;
          if (setting == nullptr) setting = std::make_unique<Setting>(problem, device);
          all.push_back(tune_one(*kernel, *setting, options.measure, interrupted));
          report(all.back());
        }
      }
    }
  }
  return all;
}

std::string merge_tuned(std::string_view table, const DeviceInfo& device,
                        const std::vector<Tuned>& tuned) {
  std::set<std::string> rows;
  std::set<std::string> keys;
  for (const Tuned& one : tuned) {
    if (!one.best) continue;
    const BlockSizes& b = *one.best;
    const std::string key = row_key(*one.kernel, one.problem, device);
    keys.insert(key);
    std::string rest;
    if (b.cluster != 1 || b.overlaps) rest = fmt::format(", {}", b.cluster);
    if (b.overlaps) rest += ", true";
    rows.insert(fmt::format("{} {{{}, {}, {}, {}{}}}}},", key, b.q, b.kv, b.warps, b.stages, rest));
  }
  std::string merged;
  while (!table.empty()) {
    const size_t end = std::min(table.find('\n'), table.size());
    const std::string line(table.substr(0, end));
    table.remove_prefix(std::min(end + 1, table.size()));
    if (line.starts_with("//")) merged += line + "\n";
    const bool retuned = std::any_of(keys.begin(), keys.end(),
                                     [&](const std::string& key) { return line.starts_with(key); });
    if (line.starts_with("{") && !retuned) rows.insert(line);
  }
  for (const std::string& row : rows) merged += row + "\n";
  return merged;
}

}  // namespace flashbench
