// The last wave of thread blocks of the backward pass's main kernel, where requests differ in
// length and nothing is masked. All blocks of keys of a request then take as long, and those of the
// last wave, if they are few, leave most multiprocessors without work for as long as one of them
// takes. They are therefore split into pieces: a thread block has a share of the queries each.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashbench::kernels::backward {

struct LastWave {
  int items;   // the last ones of the launch
  int pieces;  // that each of them is split into
};

constexpr int kMostPieces = 4;        // that add their sums up in memory
constexpr int kMostPiecesAtOnce = 2;  // of a launch, for each item that runs at once
constexpr int kLeastPieceSteps = 4;   // of a piece (see Work), or its start and end take too long

// Of so many items, of which so many run at once.
__host__ __device__ constexpr LastWave last_wave(int64_t items, int at_once, bool lengths_differ) {
  const int last = static_cast<int>(items % at_once);
  if (2 * last > at_once) {
    // They fill the gaps that thread blocks of different lengths leave.
    return {last, lengths_differ ? 2 : 1};
  }
  int pieces = 1;
  while (pieces < kMostPieces && (pieces + 1) * last <= at_once) ++pieces;
  return {last, pieces};
}

}  // namespace flashbench::kernels::backward
