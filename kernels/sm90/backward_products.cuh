// The products of a consumer of the backward pass's main kernel for Hopper: the part of a block
// that it works on, the operands in shared memory or registers, and the instructions that multiply
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/ptx/cvt.h"
#include "kernels/ptx/ldmatrix.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/ptx/stmatrix.h"
#include "kernels/ptx/wgmma.h"
#include "kernels/sm90/backward_shapes.cuh"
#include "kernels/sm90/roles.cuh"

namespace flashbench::kernels::sm90 {

template <typename T, BackwardConfig kConfig, typename Delay>
struct BackwardProducts : BackwardShapes<kConfig, Delay> {
  using Shapes = BackwardShapes<kConfig, Delay>;
  using Shapes::kHeadDim, Shapes::kBlockQ, Shapes::kBlockKv, Shapes::kKeysInRegisters,
      Shapes::kQPanelBytes, Shapes::kKvPanelBytes, Shapes::kKvBytes, Shapes::kKBuffers,
      Shapes::kVBuffers, Shapes::kSFloats, Shapes::kKeyFloats, Shapes::kSteps, Shapes::kDqColumns,
      Shapes::kDqTransposed;
  using typename Shapes::Shared;

  // The part of a block that a thread works on. Rows and columns count from the start of the block.
  struct Part {
    int consumer, warp, lane;
    int first_row;                      // its consumer's first key
    int warp_key;                       // its warp's first key
    int first_query;                    // its own first query
    int first_dq_row, first_dq_column;  // start of its warpgroup's part of dQ
    // Offset in a buffer of dS of the row that it addresses in stmatrix, which stores 16 keys of
    // its warp, transposed.
    uint32_t ds_store;

    __device__ explicit Part(int consumer_, int thread = static_cast<int>(threadIdx.x))
        : consumer(consumer_),
          warp(thread / 32 % 4),
          lane(thread % 32),
          first_row(kConsumerRows * consumer),
          warp_key(first_row + kWarpRows * warp),
          first_query(lane % 4 * 2),
          first_dq_row(0),
          first_dq_column(kDqColumns * consumer) {
      const int row = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
      ds_store = consumer * kQPanelBytes + row * kRowBytes + (chunk ^ lane % 8) * 16;
    }
  };

  // The operands of a consumer's products.
  struct Operands {
    ptx::WgmmaMatrix k_rows, v_rows;  // its keys
    ptx::WgmmaMatrix q, d_o;
    ptx::WgmmaMatrix k_columns;  // its columns of dQ
    ptx::WgmmaMatrix ds;

    // Of the n-th block of keys.
    __device__ Operands(const Shared& shared, const Part& part, unsigned n = 0)
        : Operands(shared, part, static_cast<int>(n % kKBuffers * kKvBytes),
                   static_cast<int>(n % kVBuffers * kKvBytes)) {}
    // K and V begin `k` and `v` bytes behind their first buffers.
    __device__ Operands(const Shared& shared, const Part& part, int k, int v)
        : k_rows(of(shared, offsetof(Shared, k), kKvPanelBytes, part.first_row).advance(k)),
          v_rows(of(shared, offsetof(Shared, v), kKvPanelBytes, part.first_row).advance(v)),
          q(of(shared, offsetof(Shared, q), kQPanelBytes)),
          d_o(of(shared, offsetof(Shared, d_o), kQPanelBytes)),
          k_columns(of(shared, offsetof(Shared, k), kKvPanelBytes, 0,
                       Shapes::stored_column(part.first_dq_column))
                        .advance(k)),
          ds(of(shared, offsetof(Shared, ds), kQPanelBytes)) {}

    // All of them computed once (see WgmmaMatrix).
    __device__ __forceinline__ Operands computed_here() const {
      Operands computed = *this;
      for (ptx::WgmmaMatrix* m : {&computed.k_rows, &computed.v_rows, &computed.q, &computed.d_o,
                                  &computed.k_columns, &computed.ds}) {
        *m = m->computed_here();
      }
      return computed;
    }

    // The matrix at `offset` in shared memory, starting at this row and column. All matrices derive
    // from one address, so that the compiler needs few registers for them.
    static __device__ ptx::WgmmaMatrix of(const Shared& shared, int offset, int panel_bytes,
                                          int row = 0, int column = 0) {
      return ptx::WgmmaMatrix(ptx::shared_address(&shared), static_cast<uint32_t>(panel_bytes))
          .advance(offset + column / 64 * panel_bytes + row * kRowBytes +
                   column % 64 * static_cast<int>(sizeof(T)));
    }
  };

  // A consumer's rows of K or V as the left operand of a product, in shared memory or, if they fit,
  // in registers. Registers halve what such a product reads from shared memory.
  struct KeysInRegisters {
    uint32_t words[kHeadDim / 16][4];
  };
  using Keys = std::conditional_t<kKeysInRegisters, KeysInRegisters, ptx::WgmmaMatrix>;

  // `rows` describes the consumer's rows in shared memory. `keys` is the whole block, in which the
  // warp's rows begin at `warp_key`.
  static __device__ __forceinline__ Keys left_operand(ptx::WgmmaMatrix rows, const char* keys,
                                                      int warp_key) {
    if constexpr (kKeysInRegisters) {
      Keys loaded;
      const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 16;
#pragma unroll
      for (int step = 0; step < kHeadDim / 16; ++step) {
        const int chunk = step * 2 + lane / 16;
        ptx::ldmatrix_x4(
            loaded.words[step],
            ptx::shared_address(keys) + (warp_key + row) * kRowBytes + (chunk ^ row % 8) * 16);
      }
      return loaded;
    } else {
      return rows;
    }
  }

  // Starts product = A B^T for A [64, kHeadDim] and B [kBlockQ, kHeadDim].
  static __device__ __forceinline__ void issue_transposed(float (&product)[kSFloats], const Keys& a,
                                                          ptx::WgmmaMatrix b) {
    ptx::keep_here(product);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      using Product = ptx::Wgmma<kBlockQ>;
      const int panel = step / 4, bytes = step % 4 * 32;
      const ptx::WgmmaMatrix queries = b.advance(panel * kQPanelBytes + bytes);
      if constexpr (kKeysInRegisters) {
        Product::template multiply_registers<T, ptx::RowsAlong::k>(product, a.words[step], queries,
                                                                   step != 0);
      } else {
        Product::template multiply_shared<T>(product, a.advance(panel * kKvPanelBytes + bytes),
                                             queries, step != 0);
      }
    }
  }

  // Starts sum += A B for A [64, kBlockQ] in registers and B [kBlockQ, kHeadDim].
  static __device__ __forceinline__ void issue_sum(float (&sum)[kKeyFloats],
                                                   const uint32_t (&a)[kSteps][4],
                                                   ptx::WgmmaMatrix b) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::Wgmma<kHeadDim>::template multiply_registers<T>(sum, a[step],
                                                           b.advance(step * 16 * kRowBytes));
    }
  }

  // Starts dQ = dS K for 2 kFloats columns of K or, with kDqTransposed, dQ^T = K^T dS^T for 64.
  template <int kFloats>
  static __device__ __forceinline__ void issue_dq(float (&dq)[kFloats], ptx::WgmmaMatrix ds,
                                                  ptx::WgmmaMatrix k) {
    using ptx::RowsAlong;
    ptx::keep_here(dq);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlockKv / 16; ++step) {
      const ptx::WgmmaMatrix ds_step = ds.advance(step / 4 * kQPanelBytes + step % 4 * 32);
      const ptx::WgmmaMatrix k_step = k.advance(step * 16 * kRowBytes);
      using Product = ptx::Wgmma<2 * kFloats>;
      if constexpr (kDqTransposed) {
        static_assert(2 * kFloats == kBlockQ);
        Product::template multiply_shared<T, RowsAlong::mn, RowsAlong::k>(dq, k_step, ds_step,
                                                                          step != 0);
      } else {
        Product::template multiply_shared<T, RowsAlong::k, RowsAlong::mn>(dq, ds_step, k_step,
                                                                          step != 0);
      }
    }
  }

  // Rounds an accumulator fragment to the left operand of a product over queries.
  static __device__ __forceinline__ void round(const float (&x)[kSFloats],
                                               uint32_t (&rounded)[kSteps][4]) {
#pragma unroll
    for (int i = 0; i < kSFloats; i += 2) {
      rounded[i / 8][i / 2 % 4] = ptx::cvt_rn_x2<T>(x[i], x[i + 1]);
    }
  }

  // Sets dS to 0 for keys from `end` on, which count from the first of the block.
  static __device__ __forceinline__ void clear_missing_keys(uint32_t (&ds)[kSteps][4], int end,
                                                            const Part& part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (part.warp_key + part.lane / 4 + 8 * half < end) continue;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) ds[i][half] = ds[i][half + 2] = 0;
    }
  }

  // Stores dS for the product that reads it from shared memory.
  static __device__ __forceinline__ void store_operand(const uint32_t (&operand)[kSteps][4],
                                                       const char* buffer, const Part& part) {
    const uint32_t to = ptx::shared_address(buffer) + part.ds_store;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      ptx::stmatrix_x4_trans(to + i * 16 * kRowBytes, operand[i]);
    }
  }
};

}  // namespace flashbench::kernels::sm90
