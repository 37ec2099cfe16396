// Attention forward for Hopper (sm_90a). A thread block computes one tile (a block of queries of
// one head) at a time and loops over the blocks of keys, from the last one that it sees to the
// first. Its warpgroups are specialised. In the producer, one warp loads K and V into shared memory
// by TMA and another loads Q, both as far ahead as there is room. Each consumer owns 64 queries,
// multiplies with wgmma and keeps S, P and O in registers.
//
// A consumer issues P V of one block of keys together with Q K^T of the next, and then computes the
// softmax while the products of the other consumers run. It stores the O of a tile while the first
// product of the next tile runs.
//
// The variant `by_request` serves requests of different lengths, windows, and K and V in pages. A
// warp of its producer looks tiles up ahead of the others: it finds a tile's request in cu_seqlens,
// and gives the tile the lengths of its request.
// TMA reads rows behind a request's end as zeros, whoever's they are, and leaves them out of O.
// From pages, a warp loads K and another V. In the variant `in_parts` of it, for few queries,
// several thread blocks divide the keys of a tile among themselves; merge_parts.cuh merges what
// they store, or merge_pair.cuh what two of them have.
//
// Without a mask, the keys of the last wave's tiles are split into pieces (forward_pieces.h). The
// last piece of a tile merges them (merge_pieces.cuh).
//
// For few tiles of many keys there are variants with `overlaps`: a consumer issues Q K^T of the
// next block first, and computes its softmax beside its own P V, too.
//
// The parts: forward_arguments.cuh has the configurations and the entry, forward_shapes.cuh the
// sizes and shared memory, forward_tiles.cuh the tiles and their order, forward_producer.cuh the
// loads, forward_consumer.cuh a consumer's loop (its way through tiles and buffers in
// forward_walk.cuh, its softmax in forward_softmax.cuh), and forward_output.cuh the stores.
#pragma once

#include "kernels/sm90/forward_arguments.cuh"
#include "kernels/sm90/forward_consumer.cuh"
#include "kernels/sm90/forward_producer.cuh"
#include "kernels/sm90/forward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, Config kConfig, typename Delay = NoDelay>
struct Forward : ForwardShapes<kConfig> {
  using Shared = typename ForwardShapes<kConfig>::Shared;

  static __device__ __forceinline__ void produce(const Arguments& a, Shared& shared) {
    ForwardProducer<ForwardShapes<kConfig>, Delay>::produce(a, shared);
  }
  static __device__ __forceinline__ void consume(const Arguments& a, Shared& shared, int consumer) {
    ForwardConsumer<T, kConfig, Delay>::consume(a, shared, consumer);
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kAtOnce)
    forward_kernel(const __grid_constant__ Arguments arguments) {
  run_forward<Kernel>(arguments);
}

}  // namespace flashbench::kernels::sm90
