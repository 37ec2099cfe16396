// Textbook attention in fp64, with a bound on the error that fp32 arithmetic may make.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"

namespace flashbench {

// Values [batch, heads, length, columns], and for each the error allowed to a correct computation
// in fp32, before the result is rounded to the problem's dtype.
struct Expected {
  std::vector<double> value, error;
};

struct ExpectedForward {
  Expected o, logsumexp;  // logsumexp has one column
};
struct ExpectedBackward {
  Expected dq, dk, dv;
};

ExpectedForward reference_forward(const Problem&, const Inputs&);

// From Q, K, V, dO and O as given; P from exact scores, L from them too.
ExpectedBackward reference_backward(const Problem&, const Inputs&);

}  // namespace flashbench
