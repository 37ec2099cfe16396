// The loads of a persistent thread block of the backward pass's main kernel for Hopper, where all
// warps compute (see backward_dq_warpgroup.cuh). One of them loads between its products, always as
// far ahead as buffers are free.
#pragma once

#include "kernels/ptx/griddepcontrol.h"
#include "kernels/sm90/backward_arguments.cuh"
#include "kernels/sm90/backward_loads.cuh"
#include "kernels/sm90/backward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

// All functions are called by the whole warp. If one thread ran them alone, the compiler would not
// hold their state and the descriptors of the warp's products in uniform registers.
template <BackwardConfig kConfig, typename Delay>
class BackwardLoadsAhead : BackwardShapes<kConfig, Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kStages, Shapes::kKBuffers;
  using typename Shapes::Shared, typename Shapes::Work, typename Shapes::Queue,
      typename Shapes::Step;
  using Loads = BackwardBlockLoads<Shapes>;

  const BackwardArguments& a_;
  Shared& shared_;
  // The item whose blocks of queries are loaded: the one of dQ's warpgroup, or the one behind that.
  Work item_;
  bool is_ahead_ = true;  // whether it is the latter
  int left_;              // blocks of it
  Step step_;             // the next one
  unsigned blocks_ = 0;   // loaded so far, of all items
  RingPosition<kStages> ring_;
  // The item behind that of dQ's warpgroup. It is taken late, since other thread blocks may have
  // less to do, and its index is used one result later, when it has arrived.
  enum { kNotTaken, kTaken, kPassedOn } next_ = kNotTaken;
  int next_index_;
  bool has_next_;

 public:
  __device__ __forceinline__ BackwardLoadsAhead(const BackwardArguments& a, Shared& shared)
      : a_(a), shared_(shared) {}

  // Loads the keys and first blocks of queries of the first item.
  __device__ __forceinline__ void first_item() {
    Queue::pass_on(a_, *shared_.queue, 0, Queue::first_index(a_));
    __syncwarp();
    start(0);
    load_k(0);
    load_v(0);
    ptx::griddepcontrol_wait();
    load_queries(0, Shapes::kDqInTurn ? Shapes::kDStages : kStages);
  }

  // dQ's warpgroup goes on to item `n`.
  __device__ __forceinline__ void begin_item() {
    is_ahead_ = false;
    next_ = kNotTaken;
    take_in_time();
  }

  // Passes on the item behind item `n`, if it has been taken, and loads its K. With kDqInTurn the
  // caller does so before after_result, between two products, since a description takes registers.
  __device__ __forceinline__ void pass_on_next(unsigned n) {
    if (next_ == kTaken) {
      next_ = kPassedOn;
      has_next_ = Queue::pass_on(a_, *shared_.queue, n + 1, next_index_);
      __syncwarp();
      if (has_next_) load_k(n + 1);
    }
  }

  // Loads what the consumers make room for when they hand over result `i` of item `n`: dS of a
  // step, or, after all steps, dK and dV. They are done with `done` blocks of queries.
  //
  // The first result tells that dQ's warpgroup is done with the keys of the item before, since the
  // consumers waited for two results to be taken. With the last dS they are done with V.
  __device__ __forceinline__ void after_result(unsigned n, int i, int steps, unsigned done) {
    if constexpr (!Shapes::kDqInTurn) pass_on_next(n);
    if (i == max(steps, 1) - 1 && has_next_) load_v(n + 1);
    load_queries(n, done + kStages);
    take_in_time();
  }

 private:
  static __device__ __forceinline__ bool leads() { return threadIdx.x == 0; }

  // Takes the next item once the last block of queries is about to be loaded.
  __device__ __forceinline__ void take_in_time() {
    if (left_ > 1 || next_ != kNotTaken) return;
    next_ = kTaken;
    next_index_ = Queue::take_index(a_);
  }

  __device__ __forceinline__ void start(unsigned n) {
    item_ = Queue::item(*shared_.queue, n);
    step_ = Step(item_);
    left_ = item_.steps;
  }

  __device__ __forceinline__ const Work& item(unsigned n) const {
    return *reinterpret_cast<const Work*>(shared_.queue->items[n % 2]);
  }
  __device__ __forceinline__ void load_k(unsigned n) const {
    if (leads()) Loads(a_, shared_, item(n)).k(n % kKBuffers);
    __syncwarp();
  }
  __device__ __forceinline__ void load_v(unsigned n) const {
    if (leads()) Loads(a_, shared_, item(n)).v();
    __syncwarp();
  }

  // Loads until `end` blocks have been loaded, or all of the item behind item `n`.
  __device__ __forceinline__ void load_queries(unsigned n, unsigned end) {
#pragma unroll 1
    while (blocks_ != end) {
      if (left_ == 0) {
        if (is_ahead_ || next_ != kPassedOn || !has_next_) return;
        is_ahead_ = true;
        start(n + 1);
        continue;
      }
      Loads loads(a_, shared_, item_);
      loads.step = step_;
      if (leads()) {
        if constexpr (Shapes::kDqInTurn) {
          const int query = step_.block * Shapes::kBlockQ;
          const int64_t row = backward::row_of_query(a_, item_, step_.head, query);
          shared_.blocks[ring_.stage] = {query, static_cast<int>(row / backward::kTurnRows),
                                         item_.turn(step_.block)};
        }
        loads.q(ring_.stage);
        loads.d_o(ring_.stage, Shapes::d_stage(ring_));
      }
      __syncwarp();
      step_.advance(item_);
      ring_.advance();
      ++blocks_;
      --left_;
    }
  }
};

}  // namespace flashbench::kernels::sm90
