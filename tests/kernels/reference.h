// Textbook attention in fp64, with a bound on the error that fp32 arithmetic may make.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"

namespace flashbench {

// Values [batch, heads, length, columns], with the error that a correct fp32 computation may have
// before its result is rounded to the problem's dtype.
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

// Uses Q, K, V, dO and O as given; P and L come from exact scores.
ExpectedBackward reference_backward(const Problem&, const Inputs&);

}  // namespace flashbench
