// The last wave of a launch whose items, the work of a thread block each, take about as long. If
// few are left for it, most multiprocessors have no work for as long as one of them takes. They are
// therefore split into pieces, one thread block each, whose sums the last one adds up.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashbench::kernels {

struct LastWave {
  int items = 0;   // the last ones of the launch
  int pieces = 1;  // that each of them is split into
  int time = 0;    // that they take, as PieceTimes count it
};

constexpr int kMostPieces = 4;  // of an item

// The time of an item, and of a piece besides its share of that, which has a least length.
struct PieceTimes {
  int item, ends, least_share;
};

// Of so many items, of which so many run at once. They are split into the number of pieces that
// ends first; these run in up to `most_waves` waves.
__host__ __device__ constexpr LastWave last_wave(int64_t items, int at_once, int most_waves,
                                                 const PieceTimes& times) {
  const int last = static_cast<int>(items % at_once);
  int pieces = 1, least = times.item;
  for (int n = 2; n <= kMostPieces && last > 0; ++n) {
    const int waves = (last * n + at_once - 1) / at_once, share = (times.item + n - 1) / n;
    if (waves > most_waves || share < times.least_share) break;
    if (waves * (share + times.ends) >= least) continue;
    pieces = n;
    least = waves * (share + times.ends);
  }
  return {last, pieces, last > 0 ? least : 0};
}

}  // namespace flashbench::kernels
