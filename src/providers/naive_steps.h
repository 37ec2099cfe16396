// The steps of standard attention; each is one parallel loop over all heads. Tensors are fp32
// views; score matrices are dense [batch, q_heads, q_len, kv_len] in fp32.
#pragma once

#include <cstdint>
#include <functional>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/thread_pool.h"

namespace flashbench {

class NaiveSteps {
 public:
  NaiveSteps(const Problem& problem, ThreadPool& pool) : p_(problem), pool_(pool) {}

  // scores = alpha * A B^T for A [q_len, columns] and B [kv_len, columns].
  void multiply_transposed(double alpha, ConstTensorView a, ConstTensorView b, float* scores) const;

  // C = alpha * scores B for B [kv_len, columns], C [q_len, columns].
  void multiply(double alpha, const float* scores, ConstTensorView b, TensorView c) const;

  // C = alpha * scores^T B, summed over the query heads of each K/V head, for B [q_len, columns],
  // C [kv_len, columns].
  void multiply_scores_transposed(double alpha, const float* scores, ConstTensorView b,
                                  TensorView c) const;

  // The functions of kernels/naive/softmax.h, for all rows.
  void softmax(float* scores, float* logsumexp) const;
  void softmax_gradient(const float* p, float* dp, const float* delta) const;
  void row_dots(ConstTensorView o, ConstTensorView d_o, float* delta) const;

  // Returns `t` in fp32: itself, or a copy in `room` (t.elements() floats).
  ConstTensorView as_fp32(ConstTensorView t, float* room) const;

  // fp32_room returns the fp32 tensor to write instead of `t`: itself, or a view of `room`.
  // from_fp32 then converts it to `t`.
  static TensorView fp32_room(TensorView t, float* room);
  void from_fp32(TensorView fp32, TensorView t) const;

 private:
  // Calls body(b, h, first, rows) for blocks of rows of every head, in parallel.
  using RowsBody = std::function<void(int64_t b, int64_t h, int64_t first, int64_t rows)>;
  void for_rows(int64_t heads, int64_t length, const RowsBody& body) const;

  // Row 0 of the scores of one query head.
  int64_t score_offset(int64_t b, int64_t h) const {
    return (b * p_.q_heads + h) * p_.q_len * p_.kv_len;
  }

  const Problem& p_;
  ThreadPool& pool_;
};

}  // namespace flashbench
