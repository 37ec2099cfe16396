#include "plan/length_patterns.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "inputs/split_mix.h"

namespace flashbench {

namespace {

// A number in [0, limit): element `index` of the seed's stream. The remainder's bias is below
// limit / 2^64.
int64_t drawn_below(int64_t limit, uint64_t seed, int64_t index) {
  const uint64_t start = split_mix(seed + kSplitMixIncrement);
  const uint64_t bits = split_mix(start + (static_cast<uint64_t>(index) + 1) * kSplitMixIncrement);
  return static_cast<int64_t>(bits % static_cast<uint64_t>(limit));
}

int64_t drawn_from_to(int64_t least, int64_t most, uint64_t seed, int64_t index) {
  return least + drawn_below(most - least + 1, seed, index);
}

int64_t length_of(LengthPattern pattern, int64_t longest, int64_t requests, uint64_t seed,
                  int64_t index) {
  switch (pattern) {
    case LengthPattern::constant:
      return longest;
    case LengthPattern::uniform:
      return drawn_from_to(longest / 2, longest, seed, index);
    case LengthPattern::wide:
      return drawn_from_to(1, longest, seed, index);
    case LengthPattern::longtail:
      return index % 8 == 0 ? longest : drawn_from_to(longest / 16, longest / 8, seed, index);
    case LengthPattern::bimodal:
      return index % 2 == 0 ? longest : longest / 8;
    case LengthPattern::skew:
      return longest * (index + 1) / requests;
  }
  throw std::logic_error("no such pattern");
}

// The length at a place in [0, kPlaces) among all requests, ordered by length.
constexpr int64_t kPlaces = 1'000'000;
int64_t length_at(const LengthQuantiles& quantiles, int64_t place) {
  constexpr int64_t kPlacesPerMille = kPlaces / 1000;
  size_t next = 1;
  while (quantiles.points[next].per_mille * kPlacesPerMille <= place) ++next;
  const auto& before = quantiles.points[next - 1];
  const auto& behind = quantiles.points[next];
  const int64_t width = (behind.per_mille - before.per_mille) * kPlacesPerMille;
  const int64_t into = place - before.per_mille * kPlacesPerMille;
  return before.length + (behind.length - before.length) * into / width;
}

}  // namespace

void set_some_to_zero(std::vector<int64_t>& lengths, double fraction, uint64_t seed) {
  constexpr int64_t kMillion = 1'000'000;
  constexpr uint64_t kStream = 0x7a65726f;  // another one than that of the lengths
  const int64_t zeros = std::llround(fraction * kMillion);
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (drawn_below(kMillion, seed ^ kStream, static_cast<int64_t>(i)) < zeros) lengths[i] = 0;
  }
}

std::vector<int64_t> lengths_by(LengthPattern pattern, int64_t longest, int64_t requests,
                                uint64_t seed) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < requests; ++i) {
    lengths.push_back(std::max<int64_t>(1, length_of(pattern, longest, requests, seed, i)));
  }
  return lengths;
}

std::vector<int64_t> zipf_lengths(int64_t longest, int64_t requests, uint64_t seed) {
  const auto weight = [](int64_t length) { return (int64_t{1} << 40) / length; };
  int64_t total = 0;
  for (int64_t length = 1; length <= longest; ++length) total += weight(length);
  std::vector<int64_t> places, order(static_cast<size_t>(requests)), lengths(order.size());
  for (int64_t i = 0; i < requests; ++i) places.push_back(drawn_below(total, seed, i));
  // The inverse of the cumulated weights in one pass, since a table of them would be large.
  std::iota(order.begin(), order.end(), 0);
  const auto place_of = [&](int64_t request) { return places[static_cast<size_t>(request)]; };
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return place_of(a) < place_of(b); });
  int64_t length = 1, end = weight(1);  // of the places that have this length
  for (const int64_t request : order) {
    while (place_of(request) >= end) end += weight(++length);
    lengths[static_cast<size_t>(request)] = length;
  }
  return lengths;
}

std::vector<int64_t> lengths_by(const LengthQuantiles& quantiles, int64_t requests, uint64_t seed) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < requests; ++i) {
    lengths.push_back(length_at(quantiles, drawn_below(kPlaces, seed, i)));
  }
  return lengths;
}

}  // namespace flashbench
