#include "verify/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "verify/references.h"
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

struct Oracle::Impl {
  Impl(const Problem&, const Inputs&, const Storage&, const OracleBudget&, Device&);

  Problem problem;
  Inputs inputs;
  ThreadPool& pool;
  Selection selection;
  References references;
};

Oracle::Impl::Impl(const Problem& asked, const Inputs& given, const Storage& storage,
                   const OracleBudget& budget, Device& device)
    : problem(asked), inputs(given), pool(*device.stream().threads) {
  if (device.info().kind == DeviceKind::cuda) {
    const OracleBudget larger{budget.fp64_flops * kGpuBudgetFactor, budget.sample_seed};
    selection = select_rows(problem, larger);
    if (better_on_gpu(problem, selection, device)) {
      references = references_on_gpu(problem, inputs, storage, selection, device);
      return;
    }
  }
  selection = select_rows(problem, budget);
  references = references_on_host(problem, inputs, storage, selection, pool);
}

Oracle::Oracle(const Problem& problem, const Inputs& inputs, const Storage& storage,
               const OracleBudget& budget, Device& device)
    : impl_(std::make_unique<Impl>(problem, inputs, storage, budget, device)) {}
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
