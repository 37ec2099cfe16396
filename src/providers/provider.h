// An attention implementation that the tool can run: one of our own kernels, a BLAS baseline, a
// library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "attention/accumulator.h"
#include "attention/problem.h"
#include "attention/run_part.h"
#include "attention/schedule.h"
#include "attention/tensors.h"
#include "device/device.h"
#include "device/step_board.h"

namespace flashbench {

// The parts of a run of several devices, to be timed apart.
enum class GroupPart { everything, computing, copying };

// What a session of several devices (device/device_group.h) tells beyond its run.
class GroupSession {
 public:
  virtual ~GroupSession() = default;

  // The next runs show here what each rank is at. The board must outlive them.
  virtual void show_on(StepBoard&) = 0;

  // The next runs do only this: computing on the data that an earlier run has copied, or copying.
  // What they write is of no use.
  virtual void only(GroupPart) = 0;

  // GPUs that are different ones; 1 on a CPU, whose threads are in groups.
  virtual int gpus_at_work() const = 0;

  // Of the last run, by rank: seconds from its own start to its own end, and bytes that it sent to
  // others.
  virtual std::vector<double> rank_seconds() const = 0;
  virtual std::vector<int64_t> sent_bytes() const = 0;
};

// One provider, prepared for one problem on one device. It owns its workspace (allocated from the
// device as MemoryUse::workspace) and everything else that launches need; it uses no globals.
class Session {
 public:
  virtual ~Session() = default;

  // Untimed work that a training step has already done before this pass: the naive backward pass
  // keeps P from its forward pass. Called once for each set of inputs, before run. Throws like
  // prepare().
  virtual void prepare_inputs(const Inputs&) {}

  // The timed work, and nothing else. Throws on failure, possibly Unsupported.
  virtual void run(const Inputs&, const Outputs&) = 0;

  // The kernel that runs, e.g. "cpu_tiled_forward 256x256 AVX3".
  virtual std::string kernel() const = 0;

  // Bytes that this provider's own loops read and write in the tensors and the workspace, tile by
  // tile, from any level of memory; empty if the loops are not known.
  virtual std::optional<int64_t> requested_bytes() const = 0;

  // How the keys are split and shared out; empty if the provider does not say.
  virtual std::optional<Schedule> schedule() const { return std::nullopt; }

  // The parts of the run that can run alone, in its order.
  virtual std::vector<RunPart> parts() const { return {}; }

  // Runs one of them. The attention takes what the last rounding has left. Throws like run().
  virtual void run_part(RunPart, const Inputs&, const Outputs&) {}

  // If several devices share the work; else null.
  virtual GroupSession* group() { return nullptr; }

  // Seconds that the host took in prepare_inputs to plan for lengths and mask, which a server would
  // do again for the next batch; empty for a provider without a plan.
  virtual std::optional<double> plan_seconds() const { return std::nullopt; }
};

// What Provider::optional_axes returns for one that knows all of those for one device.
inline const std::vector<std::string_view> kEveryOptionalAxis{
    "window_left", "window_right", "head_dim_v",    "lengths",    "page_size",
    "kv_layout",   "page_order",   "shared_prefix", "block_table"};

// Thrown if a problem turns out to be unsupported only while it is prepared or run; the message
// says why.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Provider {
 public:
  virtual ~Provider() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view description() const = 0;
  virtual DeviceKind device_kind() const = 0;

  // A sentence that says why the provider is absent, e.g. because its library is missing. It is
  // then left out unless providers are named, and why_unsupported() returns the same sentence for
  // every problem.
  virtual std::optional<std::string> why_absent() const { return std::nullopt; }

  // Whether it is left out unless it is named, because it is a special case of another provider.
  virtual bool on_request_only() const { return false; }

  // The dtype in which the provider keeps scores in memory; its verdict allows for their rounding.
  // A fused kernel keeps them in fp32 registers.
  virtual Dtype scores_dtype(const Problem&) const { return Dtype::fp32; }

  // The dtype in which the provider keeps O of a part of the keys in memory, before it merges the
  // parts; its verdict allows for their rounding.
  virtual Dtype partials_dtype(const Problem&) const { return Dtype::fp32; }

  // In what it sums products; its verdict allows for that where they are of bytes.
  virtual Accumulator accumulator(const Problem&) const { return {}; }

  // The dtype in which it stores O; of e4m3, which only inputs of e4m3 have, with the factor of its
  // Outputs.
  virtual Dtype output_dtype(const Problem& p) const { return p.output_dtype(); }

  // Whether a forward pass returns the logsumexp; otherwise Outputs have none, and none is checked.
  virtual bool gives_logsumexp() const { return true; }

  // The other program (src/program) that runs it; empty for this one.
  virtual std::string_view program() const { return {}; }

  // The dtypes that it knows. A problem of another is not offered to it.
  virtual std::vector<Dtype> dtypes() const {
    return {kUnscaledDtypes.begin(), kUnscaledDtypes.end()};
  }

  // The optional axes of problems (plan/axes.cpp) that it knows. A problem that mentions another
  // one is not offered to it: it would compute something else.
  virtual std::vector<std::string_view> optional_axes() const { return {}; }

  // A sentence that says why this problem cannot run here; empty if it can.
  virtual std::optional<std::string> why_unsupported(const Problem&, const DeviceInfo&) const = 0;

  // The same for a placement of its tensors. By default every placement is supported.
  virtual std::optional<std::string> why_unsupported_placement(const Problem&, Placement,
                                                               const DeviceInfo&) const {
    return std::nullopt;
  }

  // Bytes that prepare() would allocate.
  virtual int64_t workspace_bytes(const Problem&, const DeviceInfo&) const = 0;

  // Throws OutOfMemory, Unsupported.
  virtual std::unique_ptr<Session> prepare(const Problem&, Device&) const = 0;
};

// All providers of this build, in the order in which tables show them (providers/list.cpp).
const std::vector<std::unique_ptr<Provider>>& all_providers();

}  // namespace flashbench
