// The references, computed by the host's threads: each thread processes whole blocks of rows.
#include <algorithm>
#include <cstddef>
#include <limits>

#include "attention/half.h"
#include "verify/exact.h"
#include "verify/host_naive.h"
#include "verify/references.h"

namespace flashbench::verify {

namespace {

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

// Computes the rounded forward pass of every row; calls visit(block, forward) for each block, in
// parallel.
template <typename Visit>
ExactForward forward_of_all_rows(const Problem& problem, const Inputs& inputs, ThreadPool& pool,
                                 const Visit& visit) {
  ExactForward result;
  result.o.resize(static_cast<size_t>(problem.output_elements() * element_size(problem.dtype)));
  result.logsumexp.assign(static_cast<size_t>(problem.query_rows()),
                          std::numeric_limits<float>::quiet_NaN());  // padding stays so
  const TensorView o = output_view<void>(result.o.data(), problem);
  const std::vector<RowBlock> blocks = all_query_blocks(problem);
  pool.parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t item, int) {
    const RowBlock& block = blocks[static_cast<size_t>(item)];
    const ForwardRows forward = forward_rows(problem, inputs, block);
    store_rows(o, block, forward.o);
    for (size_t i = 0; i < block.rows.size(); ++i) {
      result.logsumexp[query_index(problem, block.batch, block.head, block.rows[i])] =
          static_cast<float>(forward.logsumexp[i]);
    }
    visit(block, forward);
  });
  return result;
}

std::vector<Reference> forward_references(const Problem& problem, const Inputs& inputs,
                                          const Storage& storage, const Selection& selection,
                                          ThreadPool& pool) {
  std::vector<Reference> references;
  references.emplace_back("o", problem.output_dtype(), problem.value_dim(), selection.queries);
  references.emplace_back("logsumexp", Dtype::fp32, 1, selection.queries);
  Reference &o = references[0], &logsumexp = references[1];
  pool.parallel_for(static_cast<int64_t>(selection.queries.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    const RowBlock& block = selection.queries[index];
    const ForwardRows forward = forward_rows(problem, inputs, block);
    copy(forward.o.view(), o.values(index));
    std::copy(forward.logsumexp.begin(), forward.logsumexp.end(), logsumexp.values(index).data);
    forward_bounds(problem, inputs, storage, block, forward, o.bounds(index),
                   logsumexp.bounds(index));
  });
  measure_naive_forward(problem, inputs, o, logsumexp, pool);
  return references;
}

std::vector<Reference> backward_references(const Problem& problem, const Inputs& inputs,
                                           const Storage& storage, const Selection& selection,
                                           const std::vector<RowStatistics>& statistics,
                                           ThreadPool& pool) {
  std::vector<Reference> references;
  references.emplace_back("dq", problem.dtype, problem.head_dim, selection.queries);
  references.emplace_back("dk", problem.dtype, problem.head_dim, selection.keys);
  references.emplace_back("dv", problem.dtype, problem.value_dim(), selection.keys);
  Reference &dq = references[0], &dk = references[1], &dv = references[2];
  pool.parallel_for(static_cast<int64_t>(selection.queries.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    query_gradients(problem, inputs, storage, selection.queries[index], statistics,
                    dq.values(index), dq.bounds(index));
  });
  pool.parallel_for(static_cast<int64_t>(selection.keys.size()), [&](int64_t item, int) {
    const auto index = static_cast<size_t>(item);
    key_gradients(problem, inputs, storage, selection.keys[index], statistics, dk.values(index),
                  dk.bounds(index), dv.values(index), dv.bounds(index));
  });
  measure_naive_backward(problem, inputs, dq, dk, dv, pool);
  return references;
}

}  // namespace

References references_on_host(const Problem& problem, const Inputs& inputs, const Storage& storage,
                              const Selection& selection, ThreadPool& pool) {
  if (problem.pass == Pass::forward) {
    return {forward_references(problem, inputs, storage, selection, pool), {}};
  }
  std::vector<RowStatistics> statistics(static_cast<size_t>(problem.query_rows()));
  ExactForward exact = forward_of_all_rows(
      problem, inputs, pool, [&](const RowBlock& block, const ForwardRows& forward) {
        const Rows<double> d_o = gather<double>(inputs.d_o, block);
        for (size_t i = 0; i < block.rows.size(); ++i) {
          const auto row = static_cast<int64_t>(i);
          statistics[query_index(problem, block.batch, block.head, block.rows[i])] = row_statistics(
              problem, forward.o.row(row), d_o.values.row(row), forward.logsumexp[i]);
        }
      });
  return {backward_references(problem, inputs, storage, selection, statistics, pool),
          std::move(exact)};
}

ExactForward exact_forward_on_host(const Problem& problem, const Inputs& inputs, ThreadPool& pool) {
  return forward_of_all_rows(problem, inputs, pool, [](const RowBlock&, const ForwardRows&) {});
}

}  // namespace flashbench::verify
