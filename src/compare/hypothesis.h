// Hypothesis tests. Each returns a p-value: the probability of at least this much evidence by
// chance.
#pragma once

#include <span>
#include <vector>

namespace flashbench {

// Mann and Whitney's test (1947), one-sided: the probability that samples of one distribution,
// divided into groups of these sizes, rank `high` above `low` at least as much as here. Exact for
// groups of up to 20 samples without ties; else the normal approximation, corrected for ties and
// continuity. Neither group may be empty.
double mann_whitney(std::span<const double> low, std::span<const double> high);

// P(T > t) for Student's t distribution with `degrees` > 0 degrees of freedom.
double student_t_upper(double t, double degrees);

// The t with P(T > t) = p, for p in (0, 1/2].
double student_t_quantile(double p, double degrees);

// Holm's step-down correction (1979): p-values, adjusted so that rejecting those <= alpha makes any
// false rejection with a probability of at most alpha. In the order of `p`.
std::vector<double> holm(std::span<const double> p);

}  // namespace flashbench
