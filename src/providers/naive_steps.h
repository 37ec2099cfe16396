// The steps of standard attention; each is one parallel loop over all heads. Tensors are fp32
// views; score matrices are dense [q_heads, q_len, kv_len] in fp32, one request after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention/problem.h"
#include "attention/row_tiles.h"
#include "attention/tensors.h"
#include "host/thread_pool.h"

namespace flashbench {

class NaiveSteps {
 public:
  // The problem must outlive it.
  NaiveSteps(const Problem& problem, ThreadPool& pool);

  // Elements of all score matrices.
  static int64_t scores(const Problem&);

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

  // Returns `t` in fp32, without pages: itself, or a copy in `room` (t.elements() floats).
  ConstTensorView queries_as_fp32(ConstTensorView t, float* room) const;  // Q, dO
  ConstTensorView keys_as_fp32(ConstTensorView t, float* room) const;     // K, V

  // fp32_room returns the fp32 tensor to write instead of `t`: itself, or a view of `room`.
  // *_from_fp32 then converts it to `t`.
  static TensorView fp32_room(TensorView t, float* room);
  void queries_from_fp32(TensorView fp32, TensorView t) const;  // O, dQ
  void keys_from_fp32(TensorView fp32, TensorView t) const;     // dK, dV

 private:
  // Calls body(request, rows of a head of it) for every item, in parallel.
  using RowsBody = std::function<void(const Problem& request, const RowTile& rows)>;
  void for_rows(const RowTiles& tiles, const RowsBody& body) const;

  ConstTensorView as_fp32(const RowTiles& tiles, ConstTensorView t, float* room) const;
  void from_fp32(const RowTiles& tiles, TensorView fp32, TensorView t) const;

  // Where the scores of these rows begin.
  int64_t score_offset(const Problem& request, const RowTile& rows) const;

  const Problem& p_;
  ThreadPool& pool_;
  RowTiles queries_, keys_;
  std::vector<int64_t> first_scores_;  // of each request; empty where lengths are equal
};

}  // namespace flashbench
