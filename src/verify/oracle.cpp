#include "verify/oracle.h"

#include <cblas.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "attention/half.h"
#include "verify/exact.h"
#include "verify/low_precision.h"
#include "verify/reference.h"
#include "verify/sampling.h"
#include "verify/verdict.h"

namespace flashbench {

using namespace verify;

struct Oracle::Impl {
  Impl(const Problem&, const Inputs&, const OracleBudget&, ThreadPool&);

  void build_forward();
  void build_backward();

  // Calls store(block, forward) for all query rows, in parallel.
  template <typename Store>
  void for_all_rows(const Store& store) const;

  double output_elements() const;

  Problem problem;
  Inputs inputs;
  ThreadPool& pool;
  Selection selection;
  std::vector<Reference> references;

  // Of the backward pass: the forward pass that feeds it.
  std::vector<RowStatistics> statistics;  // [batch, q_heads, q_len]
  std::vector<std::byte> o;               // in the problem's dtype and layout
};

namespace {

// Row-parallel work of our own threads; BLAS's would spin on after it and disturb a measurement.
void use_own_threads_only() {
  openblas_set_num_threads(1);
}

// Stores a block of exact rows in a tensor's dtype.
void store_rows(const TensorView& tensor, const RowBlock& block, const Matrix<double>& rows) {
  for (int64_t i = 0; i < rows.rows(); ++i) {
    const int64_t offset =
        tensor.offset(block.batch, block.head, block.rows[static_cast<size_t>(i)]);
    for (int64_t column = 0; column < rows.cols(); ++column) {
      store_element(tensor.data, tensor.dtype, offset + column,
                    static_cast<float>(rows.row(i)[column]));
    }
  }
}

ConstTensorView logsumexp_view(const Problem& p, const float* logsumexp) {
  return dense_view<const void>(logsumexp, Dtype::fp32, Layout::bhsd, p.batch, p.q_heads, p.q_len,
                                1);
}

ConstTensorView output_view(const Problem& p, const Outputs& outputs, const std::string& tensor) {
  if (tensor == "o") return outputs.o;
  if (tensor == "dq") return outputs.dq;
  if (tensor == "dk") return outputs.dk;
  if (tensor == "dv") return outputs.dv;
  return logsumexp_view(p, outputs.logsumexp);
}

}  // namespace

Oracle::Impl::Impl(const Problem& asked, const Inputs& given, const OracleBudget& budget,
                   ThreadPool& threads)
    : problem(asked), inputs(given), pool(threads), selection(select_rows(asked, budget)) {
  use_own_threads_only();
  if (problem.pass == Pass::forward) {
    build_forward();
  } else {
    build_backward();
  }
}

template <typename Store>
void Oracle::Impl::for_all_rows(const Store& store) const {
  const std::vector<RowBlock> blocks = all_query_blocks(problem);
  pool.parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t item, int) {
    const RowBlock& block = blocks[static_cast<size_t>(item)];
    store(block, forward_rows(problem, inputs, block));
  });
}

void Oracle::Impl::build_forward() {
  references.emplace_back("o", problem.dtype, problem.head_dim, selection.queries);
  references.emplace_back("logsumexp", Dtype::fp32, 1, selection.queries);
  Reference &o_reference = references[0], &logsumexp_reference = references[1];
  pool.parallel_for(static_cast<int64_t>(selection.queries.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    const RowBlock& block = selection.queries[index];
    const ForwardRows forward = forward_rows(problem, inputs, block);
    copy(forward.o.view(), o_reference.values(index));
    std::copy(forward.logsumexp.begin(), forward.logsumexp.end(),
              logsumexp_reference.values(index).data);
    forward_bounds(problem, inputs, block, forward, o_reference.bounds(index),
                   logsumexp_reference.bounds(index));
  });
  measure_naive_forward(problem, inputs, o_reference, logsumexp_reference, pool);
}

void Oracle::Impl::build_backward() {
  statistics.resize(static_cast<size_t>(problem.query_rows()));
  o.resize(static_cast<size_t>(problem.query_elements() * element_size(problem.dtype)));
  const TensorView o_view = query_view<void>(o.data(), problem);
  for_all_rows([&](const RowBlock& block, const ForwardRows& forward) {
    const Rows<double> d_o = gather<double>(inputs.d_o, block);
    for (size_t i = 0; i < block.rows.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      statistics[query_index(problem, block.batch, block.head, block.rows[i])] =
          row_statistics(problem, forward.o.row(row), d_o.values.row(row), forward.logsumexp[i]);
    }
    store_rows(o_view, block, forward.o);
  });

  references.emplace_back("dq", problem.dtype, problem.head_dim, selection.queries);
  references.emplace_back("dk", problem.dtype, problem.head_dim, selection.keys);
  references.emplace_back("dv", problem.dtype, problem.head_dim, selection.keys);
  Reference &dq = references[0], &dk = references[1], &dv = references[2];
  pool.parallel_for(static_cast<int64_t>(selection.queries.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    query_gradients(problem, inputs, selection.queries[index], statistics, dq.values(index),
                    dq.bounds(index));
  });
  pool.parallel_for(static_cast<int64_t>(selection.keys.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    key_gradients(problem, inputs, selection.keys[index], statistics, dk.values(index),
                  dk.bounds(index), dv.values(index), dv.bounds(index));
  });
  measure_naive_backward(problem, inputs, dq, dk, dv, pool);
}

double Oracle::Impl::output_elements() const {
  return static_cast<double>(problem.pass == Pass::forward
                                 ? problem.query_elements() + problem.query_rows()
                                 : problem.query_elements() + 2 * problem.key_elements());
}

Oracle::Oracle(const Problem& problem, const Inputs& inputs, const OracleBudget& budget,
               ThreadPool& pool)
    : impl_(std::make_unique<Impl>(problem, inputs, budget, pool)) {}
Oracle::~Oracle() = default;
Oracle::Oracle(Oracle&&) noexcept = default;

Verdict Oracle::judge(const Outputs& outputs) const {
  Verdict verdict;
  verdict.status = Verdict::Status::passed;
  verdict.sampled = impl_->selection.sampled;
  int64_t checked = 0;
  for (const Reference& reference : impl_->references) {
    Judgement judgement = judge_tensor(
        reference, output_view(impl_->problem, outputs, reference.tensor), impl_->pool);
    checked += judgement.error.checked;
    if (!judgement.error.passed) {
      verdict.status = Verdict::Status::failed;
      if (!verdict.reason.empty()) verdict.reason += "; ";
      verdict.reason += judgement.reason;
    }
    verdict.tensors.push_back(std::move(judgement.error));
  }
  verdict.checked_fraction = static_cast<double>(checked) / impl_->output_elements();
  return verdict;
}

void Oracle::exact_forward(TensorView o, float* logsumexp) const {
  const Problem& p = impl_->problem;
  if (p.pass == Pass::forward) {
    impl_->for_all_rows([&](const RowBlock& block, const ForwardRows& forward) {
      store_rows(o, block, forward.o);
      for (size_t i = 0; i < block.rows.size(); ++i) {
        logsumexp[query_index(p, block.batch, block.head, block.rows[i])] =
            static_cast<float>(forward.logsumexp[i]);
      }
    });
    return;
  }
  const auto* from = impl_->o.data();
  const ConstTensorView view = query_view<const void>(from, p);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      for (int64_t row = 0; row < p.q_len; ++row) {
        std::memcpy(static_cast<std::byte*>(o.data) + o.offset(b, h, row) * element_size(p.dtype),
                    from + view.offset(b, h, row) * element_size(p.dtype),
                    static_cast<size_t>(p.head_dim * element_size(p.dtype)));
        const size_t index = query_index(p, b, h, row);
        logsumexp[index] = static_cast<float>(impl_->statistics[index].logsumexp);
      }
    }
  }
}

}  // namespace flashbench
