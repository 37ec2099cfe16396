// The high-precision reference of one problem, and the judgement of outputs against it.
//
// Every figure is computed in fp64 from the inputs as rounded to the problem's dtype (bytes: times
// their factors), streaming over K/V tiles. Criteria, formulas and their calibration:
// docs/verifying.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/enum_names.h"
#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/device.h"
#include "verify/recipe_cost.h"
#include "verify/storage.h"

namespace flashbench {

// The error of one output tensor against the reference, over the elements that were checked.
struct TensorError {
  std::string tensor;     // "o", "logsumexp", "dq", "dk" or "dv"
  int64_t checked = 0;    // elements
  int64_t nonfinite = 0;  // elements that are NaN or infinite where the reference is finite, or
                          // differ from the reference's non-finite value
  double max_abs = 0;     // over the finite ones, against unrounded fp64
  double mean_abs = 0;
  double ratio = 0;                // max_abs / max_abs of the naive computation in the dtype
  double lambda = 0;               // largest error relative to the rounding-error bound
  std::array<int64_t, 4> worst{};  // batch, head, row, column: first wrong non-finite
                                   // element, or where lambda is attained
  bool passed = false;
  // Root mean squares over the finite elements, relative to that of the exact values: of the error,
  // and of the error that rounding explains (the bound and the final rounding to the dtype). Empty
  // if the exact values are all 0 in the dtype.
  std::optional<double> rel_rms_err{}, rel_rms_explained{};
};

struct Verdict {
  enum class Status { not_checked, passed, failed };
  Status status = Status::not_checked;
  bool sampled = false;         // only some rows were checked
  double checked_fraction = 0;  // of all output elements
  std::vector<TensorError> tensors;
  std::string reason;    // a sentence, for failed and not_checked
  std::string coarse{};  // a sentence, for outputs that passed but are coarse (verify/coarse.h)
  std::optional<RecipeCost> recipe_cost{};  // of a problem with a recipe, or with a kv_dtype

  bool passed() const { return status == Status::passed; }
};
template <>
inline constexpr auto kNames<Verdict::Status> =
    names_of<Verdict::Status>({{Verdict::Status::not_checked, "not_checked"},
                               {Verdict::Status::passed, "passed"},
                               {Verdict::Status::failed, "failed"}});

// The work that the oracle may do; rows are sampled if a full reference would take more.
struct OracleBudget {
  double fp64_flops = 4e11;  // on the host
  uint64_t sample_seed = 1;
};

// A GPU may do this many times as much: at 50 TFLOP/s in fp64 it still takes less time.
inline constexpr double kGpuBudgetFactor = 100;

class Oracle {
 public:
  // `inputs` are on the host: q, k, v, and d_o for the backward pass. Its o and logsumexp are not
  // read, because the reference gradients are those of exact attention. `storage` is that
  // of the judged providers. `before_rounding`: the inputs of a problem with a kv_dtype before K
  // and V were rounded, so that the verdict has what that costs. Inputs and device must outlive the
  // oracle. The constructor does the work, on the device's threads or, if that is faster, no
  // input is bytes and the GPU has room, on the GPU.
  // For a backward problem it includes the forward pass of every row, whatever the budget, because
  // exact_forward must return it.
  Oracle(const Problem& problem, const Inputs& inputs, const Storage& storage,
         const OracleBudget& budget, Device& device,
         const std::optional<Inputs>& before_rounding = std::nullopt);
  ~Oracle();
  Oracle(Oracle&&) noexcept;

  // Judges outputs on the host; without a logsumexp, only O. Those of a problem with a recipe are
  // compared with the reference of the rounded inputs, and what rounding them costs is in the
  // verdict beside. Wrong values never make it throw.
  Verdict judge(const Outputs& outputs) const;

  // A forward pass in the problem's dtype to feed a backward pass: the exact O rounded to the dtype
  // and the exact logsumexp rounded to fp32, in the problem's layout. Has every row, even when
  // sampled, and no padding.
  void exact_forward(TensorView o, float* logsumexp) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashbench
