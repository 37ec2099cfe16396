// Properties of the outputs of the adversarial inputs (inputs/patterns.h) that are stricter than
// being close to the reference; some outputs are known bit for bit.
#pragma once

#include <string>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "inputs/inputs.h"
#include "verify/storage.h"

namespace flashbench {

// Returns a sentence that says what is wrong with outputs on the host; empty if nothing is, or if
// nothing more is known about this distribution.
//
//   equal_scores   O is the mean of the visible rows of V, to the bit where their number is a power
//                  of two (every sum of them is exact, in the accumulators of bytes too), unless
//                  partial results are rounded; in the middle between two values, it is either
//   one_hot        O is the row of V that the query picks, bit for bit
//   huge_scores    O of a query that sees a single key is that row of V, bit for bit
//   nan_key, inf_key, nan_unseen
//                  outputs are not finite exactly where IEEE arithmetic over the visible pairs
//                  makes them so: a masked key does not count, whatever it holds
//
// Every row is checked, even if the reference has only sampled rows.
std::string broken_expectation(const Problem&, const InputSpec&, const Storage&, const Inputs& host,
                               const Outputs& host_outputs);

}  // namespace flashbench
