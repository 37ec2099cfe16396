// Lengths of requests by a rule and a seed. Integers throughout, so that every machine draws the
// same.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attention/enum_names.h"
#include "plan/length_quantiles.h"

namespace flashbench {

// The rules of FlashAttention's benchmarks, for requests of at most n tokens:
//   constant  n
//   uniform   from n / 2 to n, drawn
//   wide      from 1 to n, drawn
//   longtail  every eighth request n, the others from n / 16 to n / 8, drawn
//   bimodal   n and n / 8 by turns
//   skew      rising linearly, up to n
enum class LengthPattern { constant, uniform, wide, longtail, bimodal, skew };
template <>
inline constexpr auto kNames<LengthPattern> =
    names_of<LengthPattern>({{LengthPattern::constant, "constant"},
                             {LengthPattern::uniform, "uniform"},
                             {LengthPattern::wide, "wide"},
                             {LengthPattern::longtail, "longtail"},
                             {LengthPattern::bimodal, "bimodal"},
                             {LengthPattern::skew, "skew"}});
inline constexpr auto kLengthPatterns = values_of<LengthPattern>();

enum class LengthSort { shortest_first, longest_first };
template <>
inline constexpr auto kNames<LengthSort> = names_of<LengthSort>(
    {{LengthSort::shortest_first, "shortest_first"}, {LengthSort::longest_first, "longest_first"}});
inline constexpr auto kLengthSorts = values_of<LengthSort>();

// Sets lengths to 0, each with this probability, which counts in millionths.
void set_some_to_zero(std::vector<int64_t>& lengths, double fraction, uint64_t seed);

// Each is the length of `requests` requests; at least 1.
std::vector<int64_t> lengths_by(LengthPattern, int64_t longest, int64_t requests, uint64_t seed);

// Lengths from 1 to `longest`, each with a probability that is inversely proportional to it (Zipf's
// law with exponent 1).
std::vector<int64_t> zipf_lengths(int64_t longest, int64_t requests, uint64_t seed);

std::vector<int64_t> lengths_by(const LengthQuantiles&, int64_t requests, uint64_t seed);

}  // namespace flashbench
