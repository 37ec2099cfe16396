// The high-precision reference of one problem, and the judgement of outputs against it.
//
// Every figure is computed in fp64 from the inputs as rounded to the problem's dtype, streaming
// over K/V tiles. Criteria, formulas and their calibration: docs/measuring.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/device.h"

namespace flashbench {

// How one output tensor compares with the reference over the elements that were checked.
struct TensorError {
  std::string tensor;     // "o", "logsumexp", "dq", "dk" or "dv"
  int64_t checked = 0;    // elements
  int64_t nonfinite = 0;  // elements that are NaN or infinite where the reference is finite, or
                          // differ from the reference's non-finite value
  double max_abs = 0;     // over the finite ones, against unrounded fp64
  double mean_abs = 0;
  double ratio = 0;   // max_abs / max_abs of the same computation done naively in the dtype
  double lambda = 0;  // worst error in units of the rounding-error bound
  std::array<int64_t, 4> worst{};  // batch, head, row, column: first wrong non-finite
                                   // element, or where lambda is attained
  bool passed = false;
  // Root mean squares over the finite elements, in units of the exact values'; empty where those
  // are all 0 in the dtype: of the error, and of what rounding explains (bound and last store).
  std::optional<double> rel_rms_err{}, rel_rms_explained{};
};

struct Verdict {
  enum class Status { not_checked, passed, failed };
  Status status = Status::not_checked;
  bool sampled = false;         // some rows only
  double checked_fraction = 0;  // of all output elements
  std::vector<TensorError> tensors;
  std::string reason;    // a sentence, for failed and not_checked
  std::string coarse{};  // a sentence, for outputs that passed and are far off by verify/coarse.h

  bool passed() const { return status == Status::passed; }
};

// What the oracle may spend; rows are sampled where a full reference would cost more.
struct OracleBudget {
  double fp64_flops = 4e11;  // on the host
  uint64_t sample_seed = 1;
};

// A GPU may spend this many times as much: at 50 TFLOP/s in fp64 it is sooner done with it.
inline constexpr double kGpuBudgetFactor = 100;

class Oracle {
 public:
  // `inputs` are on the host: q, k, v, and d_o for the backward pass (its o and logsumexp are not
  // read: the reference gradients are those of exact attention). `scores` is the dtype in which the
  // judged providers keep S and dP (Provider::scores_dtype). Inputs and device must outlive the
  // oracle. The work is done here, by the device's threads or, where that is sooner done, by the
  // GPU; for a backward problem that includes the forward pass of every row, whatever the budget,
  // since exact_forward has to give it.
  Oracle(const Problem& problem, const Inputs& inputs, Dtype scores, const OracleBudget& budget,
         Device& device);
  ~Oracle();
  Oracle(Oracle&&) noexcept;

  // Judges outputs on the host; without a logsumexp, O alone. Never throws for wrong values: they
  // are what it looks for.
  Verdict judge(const Outputs& outputs) const;

  // A forward pass in the problem's dtype to feed a backward pass: the exact O rounded to the dtype
  // and the exact logsumexp rounded to fp32, in the problem's layout. Every row, also when sampled.
  void exact_forward(TensorView o, float* logsumexp) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashbench
