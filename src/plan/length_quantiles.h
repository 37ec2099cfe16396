// Lengths of requests in services, as quantiles.
//
// The lengths are those that a decoding step meets: the prompt and what was generated so far, each
// request counted once for every token that it generates. They were computed from published traces:
//
//   azure23_conv, azure23_code   Azure's traces of 2023, conversation and code (19,366 and 8,819
//                                requests): Patel et al., "Splitwise: Efficient generative LLM
//                                inference using phase splitting", ISCA 2024
//   mooncake_conv                Mooncake's trace of conversations (12,031 requests): Qin et al.,
//                                "Mooncake: Trading more storage for less computation", FAST 2025
//
// What is known of each are its 10th, 50th, 90th and 99th percentile and its mean. Between those
// percentiles lengths are interpolated linearly, below the lowest down to 1, and none is above the
// highest. The means of what is drawn are therefore others than the traces' (1226, 2133 and 13056):
// about 1209, 2329 and 15449. Between percentiles whose logarithms are interpolated they would be
// 1159, 2112 and 13750: nearer for two of three. The tables stay as they are, because results have
// been measured with these lengths; one with more percentiles is to get a name of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace flashbench {

struct LengthQuantiles {
  struct Point {
    int64_t per_mille, length;
  };
  std::string_view source;
  std::array<Point, 6> points;  // ascending
};

inline constexpr std::array kLengthQuantiles{
    LengthQuantiles{"azure23_conv",
                    {{{0, 1}, {100, 404}, {500, 1249}, {900, 1551}, {990, 4151}, {1000, 4151}}}},
    LengthQuantiles{"azure23_code",
                    {{{0, 1}, {100, 217}, {500, 1589}, {900, 5013}, {990, 7476}, {1000, 7476}}}},
    LengthQuantiles{
        "mooncake_conv",
        {{{0, 1}, {100, 1345}, {500, 7622}, {900, 29625}, {990, 87376}, {1000, 87376}}}}};

constexpr std::string_view name(const LengthQuantiles& quantiles) {
  return quantiles.source;
}

}  // namespace flashbench
