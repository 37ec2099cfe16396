#include "verify/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "attention/half.h"
#include "inputs/rounded_inputs.h"
#include "verify/exact.h"
#include "verify/references.h"
#include "verify/rounding.h"
#include "verify/sampling.h"
#include "verify/verdict.h"

namespace flashbench {

using namespace verify;

namespace {

ConstTensorView judged_view(const Problem& p, const Outputs& outputs, const std::string& tensor) {
  if (tensor == "o") return outputs.o;
  if (tensor == "dq") return outputs.dq;
  if (tensor == "dk") return outputs.dk;
  if (tensor == "dv") return outputs.dv;
  return logsumexp_view<const void>(outputs.logsumexp, p);
}

// Without padding.
double judged_elements(const Problem& p) {
  const int64_t queries = p.q_tokens() * p.q_heads, keys = p.kv_tokens() * p.kv_heads;
  return static_cast<double>(p.pass == Pass::forward
                                 ? queries * (p.value_dim() + 1)
                                 : queries * p.head_dim + keys * (p.head_dim + p.value_dim()));
}

// From this magnitude on, fp32 numbers are integers. Rounding of the logsumexp alone then changes P
// = exp(S - L), as backward passes recompute it, by a factor that no first-order bound covers.
constexpr float kMostLogsumexp = 0x1p23f;

// A sentence about logsumexps beyond that; empty if there is none.
std::string beyond_fp32_logsumexp(const std::vector<float>& logsumexp) {
  float largest = 0;
  for (const float value : logsumexp) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  if (largest < kMostLogsumexp) return "";
  const float half_ulp =
      (std::nextafter(largest, std::numeric_limits<float>::infinity()) - largest) / 2;
  return fmt::format(
      "the largest |logsumexp| is {:.3g}, which fp32 holds to +-{:g}: P = exp(S - logsumexp), "
      "recomputed in a backward pass, may be off by a factor of e^{:g} for that reason alone",
      largest, half_ulp, half_ulp);
}

}  // namespace

// What a recipe has made of the inputs, in fp32, which holds a byte times its factor to 2^-24.
struct DequantizedInputs {
  std::vector<float> q, k, v;
  Inputs views;

  DequantizedInputs(const ByteInputs& bytes, ThreadPool& pool)
      : q(dequantize(bytes.q, bytes.qk_format, bytes.score_factor, pool)),
        k(dequantize(bytes.k, bytes.qk_format, 1, pool)),
        v(dequantize(bytes.v, ByteFormat::e4m3, 1, pool)) {
    const auto view = [](const std::vector<float>& values, ConstTensorView shape) {
      shape.data = values.data();
      shape.dtype = Dtype::fp32;
      shape.descales = {};
      return shape;
    };
    views.q = view(q, bytes.q);
    views.k = view(k, bytes.k);
    views.v = view(v, bytes.v);
  }
};

struct Oracle::Impl {
  Impl(const Problem&, const Inputs&, const Storage&, const OracleBudget&, Device&,
       const std::optional<Inputs>& before);

  void compute_before_rounding(const Inputs& before);

  // Of a problem with a recipe.
  void round_inputs();
  void shift_logsumexp();

  RecipeCost recipe_cost(const ConstTensorView& o) const;

  Problem problem;
  Inputs inputs;
  ThreadPool& pool;
  std::optional<DequantizedInputs> dequantized;
  Selection selection;
  References references;
  HostVector<std::byte> rounded_memory;
  std::optional<RoundedInputs> rounded;      // of a problem with a recipe
  std::optional<Reference> before_rounding;  // O, of the inputs before they were rounded
};

void Oracle::Impl::compute_before_rounding(const Inputs& before) {
  before_rounding.emplace("o", problem.dtype, problem.value_dim(), selection.queries);
  pool.parallel_for(static_cast<int64_t>(selection.queries.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    copy(forward_rows(problem, before, selection.queries[index]).o.view(),
         before_rounding->values(index));
  });
}

void Oracle::Impl::round_inputs() {
  rounded_memory.resize(RoundedInputs::memory_bytes(problem));
  rounded.emplace(problem, rounded_memory.data());
  rounded->round(inputs, pool);
  dequantized.emplace(rounded->bytes(), pool);
}

// Adds to each row's logsumexp what the recipe has taken from its scores.
void Oracle::Impl::shift_logsumexp() {
  Reference& logsumexp = references.tensors[1];
  for (size_t i = 0; i < selection.queries.size(); ++i) {
    const RowBlock& block = selection.queries[i];
    for (size_t row = 0; row < block.rows.size(); ++row) {
      logsumexp.values(i).row(static_cast<int64_t>(row))[0] +=
          rounded->logsumexp_shift(inputs.q, block.batch, block.head, block.rows[row]);
    }
  }
}

RecipeCost Oracle::Impl::recipe_cost(const ConstTensorView& o) const {
  const Reference& of_rounded = references.tensors[0];
  std::map<std::pair<int64_t, int64_t>, SquaresOfHead> heads;
  for (size_t i = 0; i < selection.queries.size(); ++i) {
    const RowBlock& block = selection.queries[i];
    SquaresOfHead& of_head = heads[{block.batch, block.head}];
    for (size_t row = 0; row < block.rows.size(); ++row) {
      const auto number = static_cast<int64_t>(row);
      const double* before = std::as_const(*before_rounding).values(i).row(number);
      const double* after = of_rounded.values(i).row(number);
      const int64_t at = o.offset(block.batch, block.head, block.rows[row]);
      SquaresOfHead of_row;
      for (int64_t c = 0; c < problem.value_dim(); ++c) {
        const auto found = static_cast<double>(load_element(o.data, o.dtype, at + c));
        const auto stored = static_cast<double>(round_to(o.dtype, static_cast<float>(before[c])));
        of_row.elements += 1;
        of_row.total += square(found - before[c]);
        of_row.quant += square(after[c] - before[c]);
        of_row.kernel += square(found - after[c]);
        of_row.exact += square(before[c]);
        of_row.storing += square(stored - before[c]);
      }
      add_row(of_head, of_row);
    }
  }
  std::vector<SquaresOfHead> squares;
  for (const auto& [head, of_head] : heads) squares.push_back(of_head);
  return flashbench::recipe_cost(squares);
}

Oracle::Impl::Impl(const Problem& asked, const Inputs& given, const Storage& storage,
                   const OracleBudget& budget, Device& device, const std::optional<Inputs>& before)
    : problem(asked), inputs(given), pool(*device.stream().threads) {
  const bool of_bytes = problem.is_quantized() || problem.kv_dtype;
  if (device.info().kind == DeviceKind::cuda && !of_bytes) {
    const OracleBudget larger{budget.fp64_flops * kGpuBudgetFactor, budget.sample_seed};
    selection = select_rows(problem, larger);
    if (better_on_gpu(problem, selection, device)) {
      try {
        references = references_on_gpu(problem, inputs, storage, selection, device);
        return;
      } catch (const OutOfMemory&) {
        // The host judges fewer rows. A backward pass would need all of its forward pass there.
        if (problem.pass == Pass::backward) throw;
      }
    }
  }
  selection = select_rows(problem, budget);
  if (before) compute_before_rounding(*before);
  if (problem.quantize != Quantize::none) {
    compute_before_rounding(inputs);
    round_inputs();
  }
  references = references_on_host(problem, dequantized ? dequantized->views : inputs, storage,
                                  selection, pool);
  if (rounded) shift_logsumexp();
}

Oracle::Oracle(const Problem& problem, const Inputs& inputs, const Storage& storage,
               const OracleBudget& budget, Device& device,
               const std::optional<Inputs>& before_rounding)
    : impl_(std::make_unique<Impl>(problem, inputs, storage, budget, device, before_rounding)) {}
Oracle::~Oracle() = default;
Oracle::Oracle(Oracle&&) noexcept = default;

Verdict Oracle::judge(const Outputs& outputs) const {
  Verdict verdict;
  verdict.status = Verdict::Status::passed;
  verdict.sampled = impl_->selection.sampled;
  int64_t checked = 0;
  for (const Reference& reference : impl_->references.tensors) {
    if (reference.tensor == "logsumexp" && outputs.logsumexp == nullptr) continue;
    Judgement judgement = judge_tensor(
        reference, judged_view(impl_->problem, outputs, reference.tensor), impl_->pool);
    checked += judgement.error.checked;
    if (!judgement.error.passed) {
      verdict.status = Verdict::Status::failed;
      if (!verdict.reason.empty()) verdict.reason += "; ";
      verdict.reason += judgement.reason;
    }
    verdict.tensors.push_back(std::move(judgement.error));
  }
  if (impl_->before_rounding) {
    verdict.recipe_cost = impl_->recipe_cost(outputs.o);
    const std::string why = verdict.recipe_cost->why_not_added();
    if (verdict.passed() && !why.empty()) {
      verdict.status = Verdict::Status::failed;
      verdict.reason = why;
    }
  }
  verdict.checked_fraction = static_cast<double>(checked) / judged_elements(impl_->problem);
  if (!verdict.passed()) {
    const std::string limit = beyond_fp32_logsumexp(impl_->references.forward.logsumexp);
    if (!limit.empty()) verdict.reason += "; " + limit;
  }
  return verdict;
}

void Oracle::exact_forward(TensorView o, float* logsumexp) const {
  const Problem& p = impl_->problem;
  ExactForward fresh;
  if (p.pass == Pass::forward) fresh = exact_forward_on_host(p, impl_->inputs, impl_->pool);
  const ExactForward& exact = p.pass == Pass::forward ? fresh : impl_->references.forward;

  const ConstTensorView from = output_view<const void>(exact.o.data(), p);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      for (int64_t row = 0; row < p.q_len_of(b); ++row) {
        std::memcpy(static_cast<std::byte*>(o.data) + o.offset(b, h, row) * element_size(p.dtype),
                    exact.o.data() + from.offset(b, h, row) * element_size(p.dtype),
                    static_cast<size_t>(p.value_dim() * element_size(p.dtype)));
      }
    }
  }
  std::memcpy(logsumexp, exact.logsumexp.data(), exact.logsumexp.size() * sizeof(float));
}

}  // namespace flashbench
