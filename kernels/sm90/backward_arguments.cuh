// What the main kernels of the backward pass for Hopper share: their arguments and their entry.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/backward/requests.cuh"
#include "kernels/backward/work.cuh"
#include "kernels/common/sections.cuh"
#include "kernels/ptx/cluster.h"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/griddepcontrol.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/roles.cuh"
#include "kernels/sm90/tensor_map.h"

namespace flashbench::kernels::sm90 {

struct BackwardArguments {
  CUtensorMap q, d_o;        // queries from first_live on; boxes of block_q rows
  CUtensorMap k, v;          // keys before key_end; boxes of all keys of a thread block
  CUtensorMap dk[2], dv[2];  // all columns, or each consumer's half; boxes of 16 rows
  CUtensorMap logsumexp, d;  // in the workspace (see kernels/backward/backward.h); boxes of block_q
  // Also in the workspace. The deterministic kernel uses turns and tickets, persistent ones use
  // tickets.
  float *dq_sums, *dk_sums, *dv_sums;
  int *turns, *tickets;
  void* work_list;  // of RequestWork, by request
  float* piece_sums;
  unsigned* piece_arrivals;
  int batch, q_heads, kv_heads, group, q_len, key_end, padded_q, padded_kv;
  int parts;       // thread blocks that share a block of keys
  int adds_keys;   // whether dK and dV are added to sums
  int first_live;  // queries before this one see no key
  int diagonal;    // query q sees keys 0 to q + diagonal
  int key_blocks;
  Sections sections;
  int rotation;  // key_blocks, if these rotate (kernels/backward/work.cuh); else 0
  int work_items, at_once;
  float scale, scale_log2;

  // Only where requests have different lengths, or windows, when the maps of Q to dV are those of
  // request_map(); see kernels/backward/backward.h.
  RowSteps q_steps, d_o_steps, k_steps, v_steps, dk_steps, dv_steps;
  backward::Requests requests;

  // Only where all requests have the same length: work items from whole_items on are pieces of a
  // block of keys, `pieces` each.
  int whole_items, pieces;
};

// What three warpgroups may have together, in registers per thread. A launch gives each thread 168,
// and setmaxnreg waits for more forever.
inline constexpr int kWarpgroupRegisters = 3 * 168;

// A block of queries of one head.
template <int kBlockQ, int kBlockKv>
struct BackwardBlock {
  int first_query;
  int64_t first_row;  // of the workspace, which holds all heads: that of first_query
  bool masked;        // whether any element of S has to be masked
  bool hides;         // whether the mask may hide a key that exists from a query
  bool is_partial;    // whether some of its queries do not exist

  template <typename Work, typename Step>
  __device__ BackwardBlock(const BackwardArguments& a, const Work& work, const Step& step)
      : BackwardBlock(a, work, step.block * kBlockQ,
                      backward::row_of_query(a, work, step.head, step.block * kBlockQ)) {}
  template <typename Work>
  __host__ __device__ BackwardBlock(const BackwardArguments& a, const Work& work, int first_query_,
                                    int64_t first_row_)
      : first_query(first_query_),
        first_row(first_row_),
        masked(min(work.key_end(a), first_query + work.diagonal(a) + 1) <
                   work.first_key + kBlockKv ||
               first_query + kBlockQ > work.q_len(a)),
        hides(first_query + work.diagonal(a) + 1 < work.first_key + kBlockKv),
        is_partial(first_query + kBlockQ > work.q_len(a)) {
    if constexpr (Work::kKnowsWindows) {
      const bool ends_before = first_query + kBlockQ - 1 + work.first_from(a) > work.first_key;
      masked |= ends_before;
      hides |= ends_before;
    }
  }
};

// The rows that a thread block loads and stores: those of the work's keys, and of all queries of a
// head. The queries of a request are those that see a key, and its keys those that a query sees;
// dK and dV are of all keys.
template <bool kByRequest>
struct BackwardRows {
  const BackwardArguments& a;

  template <typename Work>
  __device__ __forceinline__ auto queries(const Work& work, const RowSteps& steps, int head) const {
    if constexpr (kByRequest) {
      return RowsOfRequest(steps, work.of_batch, head, work.first_q, work.q_len(a));
    } else {
      return RowsOfHead{head, work.batch};
    }
  }
  // The number of query 0 among them.
  __device__ __forceinline__ int query_0() const {
    if constexpr (kByRequest) {
      return 0;
    } else {
      return -a.first_live;
    }
  }
  template <typename Work>
  __device__ __forceinline__ auto keys(const Work& work, const RowSteps& steps) const {
    if constexpr (kByRequest) {
      return RowsOfRequest(steps, work.of_batch, work.kv_head, work.first_k, work.key_end(a));
    } else {
      return RowsOfHead{work.kv_head, work.batch};
    }
  }
  template <typename Work>
  __device__ __forceinline__ auto key_gradients(const Work& work, const RowSteps& steps) const {
    if constexpr (kByRequest) {
      return RowsOfRequest(steps, work.of_batch, work.kv_head, work.first_k, work.kv_len);
    } else {
      return RowsOfHead{work.kv_head, work.batch};
    }
  }
};

// Waits until both thread blocks of a pair have come here. Each then sees what the other has
// written, if `kReleases`, else only the barriers that it has initialised.
template <bool kReleases = false>
__device__ __forceinline__ void sync_pair() {
  __syncwarp();
  if constexpr (kReleases) {
    ptx::barrier_cluster_arrive();
  } else {
    ptx::barrier_cluster_arrive_relaxed();
  }
  ptx::barrier_cluster_wait();
}

// A thread block finds its work, unless it is persistent, and its warpgroups take their roles. It
// starts while the first kernel ends: who reads a list of work waits for that kernel first, as does
// the thread that loads Q and dO, and all other threads wait for Q and dO.
template <typename Kernel>
__device__ __forceinline__ void find_work_and_run(const BackwardArguments& a) {
  using Shared = typename Kernel::Shared;
  using Work = typename Kernel::Work;
  extern __shared__ __align__(1024) char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  if (threadIdx.x == 0) {
    ptx::griddepcontrol_launch_dependents();
    ptx::prefetch_tensormap(a.q);
    ptx::prefetch_tensormap(a.d_o);
    ptx::prefetch_tensormap(a.k);
    ptx::prefetch_tensormap(a.v);
    ptx::prefetch_tensormap(a.logsumexp);
    ptx::prefetch_tensormap(a.d);
    Kernel::initialise_barriers(shared);
    // Tickets follow the order in which thread blocks start, so that none waits for one that has
    // yet to start. A pair has the one of its first thread block.
    if constexpr (Kernel::kDeterministic && !Kernel::kPersistent) {
      if (!Kernel::kPairs || ptx::cluster_ctarank() == 0) {
        ptx::griddepcontrol_wait();
        shared.ticket = atomicAdd(a.tickets, 1);
      }
    }
  }
  const auto index = [&] {
    if constexpr (Kernel::kDeterministic && Kernel::kPairs) {
      return ptx::ld_shared_cluster(ptx::mapa(ptx::shared_address(&shared.ticket), 0));
    } else if constexpr (Kernel::kDeterministic) {
      return shared.ticket;
    } else {
      return static_cast<int>(blockIdx.x) / (Kernel::kPairs ? 2 : 1);
    }
  };
  // Each has initialised its barriers, and the first has the ticket.
  if constexpr (Kernel::kPairs) sync_pair<Kernel::kDeterministic>();
  if constexpr (Kernel::kPersistent) {
    __syncthreads();
    Kernel::run_roles(a, shared);
  } else if constexpr (Kernel::kSharesWork) {
    // One warp looks for the work. What it finds stays in shared memory, as registers are few.
    Work& work = *reinterpret_cast<Work*>(shared.work);
    if (threadIdx.x < 32) {
      __syncwarp();
      if constexpr (Work::kIsListed) ptx::griddepcontrol_wait();
      const auto found = Work::find(a, index());
      if (threadIdx.x == 0) found.describe(a, &work);
    }
    __syncthreads();
    if (work.exists) Kernel::run_roles(a, shared, work);
  } else {
    __syncthreads();
    Kernel::run_roles(a, shared, Work(a, index()));
  }
  // The other waits for all that this one sends. It has arrived when both have come here.
  if constexpr (Kernel::kPairs) sync_pair();
  // The last kernel waits for this one alone, which therefore must not end before the first.
  ptx::griddepcontrol_wait();
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    backward_kernel(const __grid_constant__ BackwardArguments a) {
  find_work_and_run<Kernel>(a);
}

// Two neighbouring thread blocks share the work with one index.
template <typename Kernel>
__global__ void __cluster_dims__(2) __launch_bounds__(Kernel::kThreads, 1)
    backward_kernel_of_pairs(const __grid_constant__ BackwardArguments a) {
  find_work_and_run<Kernel>(a);
}

}  // namespace flashbench::kernels::sm90
