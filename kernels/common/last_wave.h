// The last wave of a launch whose items, the work of a thread block each, take about as long. If
// few are left for it, most multiprocessors have no work for as long as one of them takes. They are
// therefore split into pieces, one thread block each, whose sums the last one adds up.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashbench::kernels {

struct LastWave {
  int items;   // the last ones of the launch
  int pieces;  // that each of them is split into
};

constexpr int kMostPieces = 4;  // of an item

// Of so many items, of which so many run at once. They are split into as many pieces as end first;
// these run in up to `most_waves` waves. If items differ in length, they are split into two even if
// that ends no sooner: pieces fill the gaps that items leave.
__host__ __device__ constexpr LastWave last_wave(int64_t items, int at_once, int most_waves,
                                                 bool lengths_differ) {
  const int last = static_cast<int>(items % at_once);
  const auto waves = [&](int pieces) { return (last * pieces + at_once - 1) / at_once; };
  int best = 1;
  for (int pieces = 2; pieces <= kMostPieces && waves(pieces) <= most_waves; ++pieces) {
    if (waves(pieces) * best < waves(best) * pieces) best = pieces;
  }
  return {last, best == 1 && lengths_differ && last > 0 ? 2 : best};
}

}  // namespace flashbench::kernels
