// How thread blocks find their part of a batch whose requests have lengths of their own, which only
// device memory knows.
//
// The tiles of keys of all requests, one request behind the other, are divided into portions of as
// many tiles. The thread blocks of a portion, one for each K/V head and block of rows, compute
// its tiles side by side. A request may have tiles in several portions, and a portion tiles of many
// requests.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/sm90/decode_arguments.cuh"

namespace flashbench::kernels::sm90 {

// A request's lengths, which keys its queries see, and how many rows others have before its own.
struct DecodeRequest {
  int number, q_len, kv_len;
  int first_from, end_from;  // query i sees keys from i + first_from to before i + end_from
  int first_q, first_k;

  // The first key that a query sees, and the end; none if that is not behind the first.
  __device__ int first_key(int query) const { return max(0, query + first_from); }
  __device__ int end_key(int query) const { return min(kv_len, query + end_from); }
  // Those of all queries.
  __device__ int first_key() const { return first_key(0); }
  __device__ int end_key() const { return end_key(q_len - 1); }

  // Of a batch of equal lengths.
  static __device__ DecodeRequest equal(const DecodeArguments& a, int number) {
    return {number, a.q_len, a.kv_len, a.first_from, a.end_from, 0, 0};
  }
  static __device__ DecodeRequest own(const DecodeArguments& a, int number) {
    DecodeRequest r = equal(a, number);
    if (a.cu_seqlens_q != nullptr) {
      const int first_q = __ldg(a.cu_seqlens_q + number), first_k = __ldg(a.cu_seqlens_k + number);
      r.q_len = __ldg(a.cu_seqlens_q + number + 1) - first_q;
      r.kv_len = __ldg(a.cu_seqlens_k + number + 1) - first_k;
      if (a.is_ragged) {
        r.first_q = first_q;
        r.first_k = first_k;
      }
    }
    if (a.ends_right) {
      r.first_from += r.kv_len - r.q_len;
      r.end_from += r.kv_len - r.q_len;
    }
    return r;
  }
};

// The parts into which portions divide a unit's keys.
struct DecodeParts {
  int first_portion, count;
  int own;  // the number of this thread block's part
};

// Keys of one request in a portion.
struct DecodePiece {
  DecodeRequest request;
  int first_key, end_key;
  DecodeParts parts;
};

// Where a warp is on its way through the tiles of a batch. It lies in shared memory, because
// registers are scarce while keys are computed.
struct DecodeWalk {
  int tiles;         // of a portion
  int end;           // of all tiles
  int portion;       // that it is in
  int portion_end;   // of its tiles
  int tile;          // the next one
  int request;       // that has the next tile
  int request_tile;  // the first one of that request
};

// The tiles of a batch in portions, of which a thread block takes every gridDim.z-th. Every warp
// walks by itself, all lanes together.
template <int kTileKeys>
class Portions {
 public:
  // Before the first portion.
  __device__ Portions(const DecodeArguments& a, DecodeWalk& walk) : a_(a), walk_(walk) {
    const int portion = static_cast<int>(blockIdx.z) - static_cast<int>(gridDim.z);
    save({.tiles = a.portion_tiles, .end = kUnknown, .portion = portion});
  }

  // Finds the next piece; false if there is none left. A request without keys also has one.
  __device__ bool next(DecodePiece& piece) {
    DecodeWalk w = walk_;
    bool found = false;
    while (!found) {
      if (w.tile >= w.portion_end && !begin_portion(w)) break;
      const DecodeRequest request = DecodeRequest::own(a_, w.request);
      const int tiles = tiles_of(request), before = w.request_tile;
      w.request_tile += time_of(request, w);
      const int first = min(w.tile - before, tiles), last = min(w.portion_end - before, tiles);
      w.tile = w.request_tile;
      ++w.request;
      found = first < last;
      if (found) {
        const int first_key = request.first_key();
        DecodeParts parts{w.portion, 1, 0};
        if (last - first < tiles) parts = parts_of(before, tiles, w);
        __syncwarp();
        if (lane() == 0) {
          piece = {request, first_key + first * kTileKeys, first_key + last * kTileKeys, parts};
        }
      }
    }
    save(w);
    return found;
  }

 private:
  static constexpr int kUnknown = std::numeric_limits<int>::max();

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ void save(const DecodeWalk& w) {
    __syncwarp();
    if (lane() == 0) walk_ = w;
    __syncwarp();
  }

  // Turns to the thread block's next portion; false if there is none.
  __device__ bool begin_portion(DecodeWalk& w) const {
    w.portion += static_cast<int>(gridDim.z);
    if (w.end != kUnknown && w.portion * w.tiles >= w.end) return false;
    w.request = w.request_tile = 0;
    Shares shares = shares_of(a_.batch, w);
    w.end = __shfl_sync(~0u, shares.end, 31);
    if (a_.portions > 0) w.tiles = max(a_.portion_tiles, (w.end + a_.portions - 1) / a_.portions);
    w.tile = w.portion * w.tiles;
    w.portion_end = min(w.tile + w.tiles, w.end);
    if (w.tile >= w.end) return false;
    // Narrows down the requests that may have the next tile, until one is left.
    while (true) {
      const unsigned behind = __ballot_sync(~0u, shares.end > w.tile);
      const int owner = __ffs(static_cast<int>(behind)) - 1;
      w.request_tile = __shfl_sync(~0u, shares.begin, owner);
      w.request = __shfl_sync(~0u, shares.first, owner);
      const int count = __shfl_sync(~0u, shares.count, owner);
      if (count == 1) return true;
      shares = shares_of(count, w);
    }
  }

  // Requests that a lane adds up, and where their tiles are.
  struct Shares {
    int first, count, begin, end;
  };
  // Divides so many requests, from `request` on, among the lanes.
  __device__ Shares shares_of(int requests, const DecodeWalk& w) const {
    const int each = (requests + 31) / 32, before = min(lane() * each, requests);
    const int count = min(each, requests - before);
    const int first = w.request + before;
    int own = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) own += time_of(DecodeRequest::own(a_, first + i), w);
    int sum = own;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int others = __shfl_up_sync(~0u, sum, distance);
      if (lane() >= distance) sum += others;
    }
    const int end = w.request_tile + sum;
    return {first, count, end - own, end};
  }

  static __device__ int tiles_of(const DecodeRequest& r) {
    if (r.q_len == 0) return 0;
    return max(1, (r.end_key() - r.first_key() + kTileKeys - 1) / kTileKeys);
  }
  // Its tiles, and those that others have room for while a thread block begins and ends it.
  __device__ int time_of(const DecodeRequest& r, const DecodeWalk& w) const {
    const int tiles = tiles_of(r);
    if (tiles == 0) return 0;
    if (a_.portions > 0) return tiles + a_.tiles_of_ends;
    return (tiles + w.tiles - 1) & -w.tiles;
  }

  // Of a request whose tiles begin there.
  static __device__ DecodeParts parts_of(int begin, int tiles, const DecodeWalk& w) {
    const int first = begin / w.tiles, last = (begin + tiles - 1) / w.tiles;
    return {first, last - first + 1, w.portion - first};
  }

  const DecodeArguments& a_;
  DecodeWalk& walk_;
};

}  // namespace flashbench::kernels::sm90
