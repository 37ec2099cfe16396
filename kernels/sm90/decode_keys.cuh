// Where the keys and values of a unit lie in memory: all that the decoding kernels know of it.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_arguments.cuh"

namespace flashbench::kernels::sm90 {

// Rows of K or V, `stride` bytes apart.
template <typename T>
struct KeyRows {
  const T* first;
  unsigned stride;

  __device__ const T* row(int key) const {
    const uint64_t offset = uint64_t{static_cast<unsigned>(key)} * stride;
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + offset);
  }
};

// The keys of a request that has no pages.
template <typename T>
struct EqualKeys {
  KeyRows<T> k_rows, v_rows;

  __device__ void look_up_first(const DecodeArguments&, int, int) {}
  __device__ void turn_to_first() {}
  __device__ void turn_to(const DecodeArguments&, int, int) {}
  __device__ KeyRows<T> k(const DecodeArguments&, int) const { return k_rows; }
  __device__ KeyRows<T> v(const DecodeArguments&, int) const { return v_rows; }
};

// The rows of a tile of K or V, in pages: each lane knows where one is.
template <typename T>
struct PagedRows {
  const T* pool;
  int64_t own_offset;  // in elements, of this lane's key
  int first_key;

  // Called by all lanes together.
  __device__ const T* row(int key) const {
    return pool + __shfl_sync(~0u, own_offset, key - first_key);
  }
};

// The keys of a request in pages, or of one that lies anywhere. A lane looks up the page of one key
// of a tile, kStages tiles before they are loaded, so that nobody waits for the block table. The
// first 2 kStages tiles are looked up together, since who moves a looked-up page waits for it.
template <typename T, int kTileKeys, int kStages>
struct PagedKeys {
  const T *k_pool, *v_pool;    // of the unit's head
  const int32_t* block_table;  // of the request; null: everything is page 0
  int end;                     // keys from here on have no pages
  int page;                    // of this lane's key in the tile
  int first[kStages];          // in the first tiles
  int ahead[kStages];          // in the next tiles

  // Begins to look up the pages of the first 2 kStages tiles.
  __device__ void look_up_first(const DecodeArguments& a, int first_key, int step) {
#pragma unroll
    for (int i = 0; i < kStages; ++i) first[i] = looked_up(a, first_key + i * step);
#pragma unroll
    for (int i = 0; i < kStages; ++i) ahead[i] = looked_up(a, first_key + (kStages + i) * step);
  }
  // Makes this tile the one whose rows k() and v() give. Tiles come in order: the first kStages,
  // then the others.
  __device__ void turn_to_first() {
    page = next_of(first);
  }
  __device__ void turn_to(const DecodeArguments& a, int first_key, int step) {
    page = next_of(ahead);
    ahead[kStages - 1] = looked_up(a, first_key + kStages * step);
  }
  __device__ PagedRows<T> k(const DecodeArguments& a, int first_key) const {
    return {k_pool, offset(a, a.tensors.k_strides, first_key), first_key};
  }
  __device__ PagedRows<T> v(const DecodeArguments& a, int first_key) const {
    return {v_pool, offset(a, a.tensors.v_strides, first_key), first_key};
  }

 private:
  static __device__ int next_of(int (&pages)[kStages]) {
    const int next = pages[0];
#pragma unroll
    for (int i = 1; i < kStages; ++i) pages[i - 1] = pages[i];
    return next;
  }
  static __device__ int own_key(int first_key) {
    return first_key + static_cast<int>(threadIdx.x) % kTileKeys;
  }
  __device__ int looked_up(const DecodeArguments& a, int first_key) const {
    const int key = own_key(first_key);
    if (block_table == nullptr || key >= end) return 0;
    return __ldg(block_table + a.page_size.quotient(key));
  }
  // Of this lane's key.
  __device__ int64_t offset(const DecodeArguments& a, const Strides& strides, int first_key) const {
    return page * strides.batch + a.page_size.remainder(own_key(first_key)) * strides.row;
  }
};

}  // namespace flashbench::kernels::sm90
