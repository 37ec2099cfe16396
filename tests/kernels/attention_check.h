// Runs an attention implementation on random tensors and checks its outputs against the reference.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "tests/kernels/reference.h"

namespace flashbench {

// Memory of one tensor, poisoned (every byte 0xff: NaN in each dtype) until it is filled.
using Bytes = std::vector<std::byte>;
Bytes poisoned(int64_t bytes);

// A problem's inputs: N(0, 1), rounded to its dtype; padding is poison. A backward problem gets the
// reference's O, rounded, and logsumexp.
class RandomInputs {
 public:
  explicit RandomInputs(const Problem&, uint64_t seed = 1);

  Inputs view() const;
  const Problem& problem() const { return problem_; }

  // Sets the elements of Q, K or V (0, 1, 2) to value(batch, head, row, column), and updates O and
  // logsumexp of a backward problem.
  void fill(int tensor, const std::function<float(int64_t, int64_t, int64_t, int64_t)>& value);

  // Those of request b alone.
  RandomInputs request(int64_t b) const;

  bool operator==(const RandomInputs&) const = default;

 private:
  void compute_forward();
  void compute_forward_of_requests();

  float* logsumexp() { return reinterpret_cast<float*>(logsumexp_.data()); }

  Problem problem_;
  Bytes q_, k_, v_, o_, d_o_, logsumexp_;
};

// The keys and values of other inputs in pages of a pool that is otherwise poison: the same problem
// with a block table that is given, with strides computed apart from those of views.
class PagedInputs {
 public:
  PagedInputs(const RandomInputs& contiguous, int64_t page_size, KvLayout, const BlockTable&);

  Inputs view() const;
  const Problem& problem() const { return problem_; }

 private:
  Bytes in_pages(const ConstTensorView& contiguous) const;

  Problem problem_;
  Inputs contiguous_;
  Bytes k_, v_;
};

// A table of random pages, each of one request, in a pool with `unused` pages more.
BlockTable random_table(const Problem& contiguous, int64_t page_size, int64_t unused,
                        uint64_t seed);

// A problem's outputs, poisoned.
class CheckedOutputs {
 public:
  explicit CheckedOutputs(const Problem&);
  Outputs view();

  // Those of request b alone.
  CheckedOutputs request(int64_t b);

  // Element of O, or of the logsumexp.
  float o(int64_t b, int64_t h, int64_t row, int64_t column) const;
  float logsumexp(int64_t b, int64_t h, int64_t row) const;

  bool operator==(const CheckedOutputs&) const = default;  // bit for bit

  // The same of outputs of another problem.
  bool same_bits(const CheckedOutputs& other) const {
    return o_ == other.o_ && dq_ == other.dq_ && dk_ == other.dk_ && dv_ == other.dv_ &&
           logsumexp_ == other.logsumexp_;
  }

 private:
  Problem problem_;
  Bytes o_, dq_, dk_, dv_, logsumexp_;
};

// The correct outputs; computed once for all implementations of a problem.
struct Expectation {
  explicit Expectation(const RandomInputs&);
  ExpectedForward forward;
  ExpectedBackward backward;
};

// Fails the current test, naming the tensor and the worst element, unless every element is within
// its error bound and one rounding to the problem's dtype.
void expect_correct(const Problem&, const Expectation&, const Outputs&);

// The same for each request by itself.
void expect_requests_correct(const RandomInputs&, CheckedOutputs&);

// Problems of requests with lengths of their own, padded and ragged.
std::vector<Problem> problems_of_lengths(Pass, Mask, int64_t head_dim);

// Problems that differ in pass, mask and lengths for one head_dim; dtype, layout and heads vary
// along, so that each value of each meets most values of the others.
std::vector<Problem> varied_problems(Pass, Mask, int64_t head_dim,
                                     std::optional<int64_t> head_dim_v = std::nullopt);

// Problems with a window on one side, the other or both: of none, one, and around a tile's keys,
// for queries fewer and more than keys.
std::vector<Problem> windowed_problems(Pass, Mask, int64_t head_dim);

}  // namespace flashbench
