// What a sample can last, whoever measured it.
#pragma once

namespace flashbench {

inline constexpr double kShortestSample = 1e-12;  // seconds; below the resolution of any clock
inline constexpr double kLongestSample = 1e9;     // seconds; thirty years

}  // namespace flashbench
