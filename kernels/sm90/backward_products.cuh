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
  using Shapes::kHeadDim, Shapes::kBlockQ, Shapes::kHalfColumns, Shapes::kBlockKv,
      Shapes::kKeysInRegisters, Shapes::kSQueries, Shapes::kKeyColumns, Shapes::kQPanelBytes,
      Shapes::kKvPanelBytes, Shapes::kKvBytes, Shapes::kKBuffers, Shapes::kVBuffers,
      Shapes::kSFloats, Shapes::kKeyFloats, Shapes::kSteps, Shapes::kDqColumns, Shapes::kDqFloats,
      Shapes::stored_column;
  using typename Shapes::Shared;

  // The part of a block that a thread works on. Rows and columns count from the start of the block.
  struct Part {
    int consumer, warp, lane;
    int first_row;                      // its consumer's first key
    int first_q_row;                    // its consumer's first query
    int warp_key;                       // its warp's first key
    int first_query;                    // its own first query
    int first_key_column;               // its consumer's first column of dK and dV
    int first_dq_row, first_dq_column;  // start of its warpgroup's part of dQ
    // Offset in a buffer of dS or P of the row that it addresses in stmatrix. stmatrix stores 16
    // keys of its warp.
    uint32_t ds_store;

    __device__ explicit Part(int consumer_, int thread = static_cast<int>(threadIdx.x))
        : consumer(consumer_),
          warp(thread / 32 % 4),
          lane(thread % 32),
          first_row(kHalfColumns ? 0 : kConsumerRows * consumer),
          first_q_row(kHalfColumns ? kSQueries * consumer : 0),
          warp_key(first_row + kWarpRows * warp),
          first_query(first_q_row + lane % 4 * 2),
          first_key_column(kHalfColumns ? kKeyColumns * consumer : 0),
          first_dq_row(0),
          first_dq_column(kDqColumns * consumer) {
      if constexpr (kHalfColumns) {
        const int row = lane % 16, chunk = kSQueries / 8 * consumer + lane / 16;
        ds_store = (warp_key + row) * kRowBytes + (chunk ^ row % 8) * 16;
      } else {  // transposed
        const int row = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
        ds_store = consumer * kQPanelBytes + row * kRowBytes + (chunk ^ lane % 8) * 16;
      }
    }
  };

  // The operands of a consumer's products.
  struct Operands {
    ptx::WgmmaMatrix k_rows, v_rows;          // its keys
    ptx::WgmmaMatrix q_rows, d_o_rows;        // its queries of S and dP
    ptx::WgmmaMatrix q_columns, d_o_columns;  // its columns of dK and dV
    ptx::WgmmaMatrix k_columns;               // its columns of dQ
    ptx::WgmmaMatrix ds, p;

    // Of the n-th block of keys.
    __device__ Operands(const Shared& shared, const Part& part, unsigned n = 0)
        : Operands(shared, part, static_cast<int>(n % kKBuffers * kKvBytes),
                   static_cast<int>(n % kVBuffers * kKvBytes)) {}
    // K and V begin `k` and `v` bytes behind their first buffers.
    __device__ Operands(const Shared& shared, const Part& part, int k, int v)
        : k_rows(of(shared, offsetof(Shared, k), kKvPanelBytes, part.first_row).advance(k)),
          v_rows(of(shared, offsetof(Shared, v), kKvPanelBytes, part.first_row).advance(v)),
          q_rows(of(shared, offsetof(Shared, q), kQPanelBytes, part.first_q_row)),
          d_o_rows(of(shared, offsetof(Shared, d_o), kQPanelBytes, part.first_q_row)),
          q_columns(of(shared, offsetof(Shared, q), kQPanelBytes, 0,
                       stored_column(part.first_key_column))),
          d_o_columns(of(shared, offsetof(Shared, d_o), kQPanelBytes, 0,
                         stored_column(part.first_key_column))),
          k_columns(
              of(shared, offsetof(Shared, k), kKvPanelBytes, 0, stored_column(part.first_dq_column))
                  .advance(k)),
          ds(of(shared, offsetof(Shared, ds), kQPanelBytes)),
          p(of(shared, offsetof(Shared, p), kQPanelBytes)) {}

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

  // Starts product = A B^T for A [64, kHeadDim] and B [kSQueries, kHeadDim].
  static __device__ __forceinline__ void issue_transposed(float (&product)[kSFloats], const Keys& a,
                                                          ptx::WgmmaMatrix b) {
    ptx::keep_here(product);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      using Product = ptx::Wgmma<kSQueries>;
      const int column = stored_column(step * 16), panel = column / 64, bytes = column % 64 * 2;
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

  // Starts sum += A B for A [64, kBlockQ] in registers and B [kBlockQ, kKeyColumns].
  static __device__ __forceinline__ void issue_sum(float (&sum)[kKeyFloats],
                                                   const uint32_t (&a)[kSteps][4],
                                                   ptx::WgmmaMatrix b) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::Wgmma<kKeyColumns>::template multiply_registers<T>(sum, a[step],
                                                              b.advance(step * 16 * kRowBytes));
    }
  }

  // The same for A in shared memory.
  static __device__ __forceinline__ void issue_sum(float (&sum)[kKeyFloats], ptx::WgmmaMatrix a,
                                                   ptx::WgmmaMatrix b) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlockQ / 16; ++step) {
      ptx::Wgmma<kKeyColumns>::template multiply_shared<T, ptx::RowsAlong::k, ptx::RowsAlong::mn>(
          sum, a.advance(step * 32), b.advance(step * 16 * kRowBytes), true);
    }
  }

  // Starts dQ = dS K for kDqColumns columns of K.
  static __device__ __forceinline__ void issue_dq(float (&dq)[kDqFloats], ptx::WgmmaMatrix ds,
                                                  ptx::WgmmaMatrix k) {
    ptx::keep_here(dq);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlockKv / 16; ++step) {
      using Product = ptx::Wgmma<kDqColumns>;
      const ptx::WgmmaMatrix keys = k.advance(step * 16 * kRowBytes);
      if constexpr (kHalfColumns) {
        Product::template multiply_shared<T, ptx::RowsAlong::mn, ptx::RowsAlong::mn>(
            dq, ds.advance(step * 16 * kRowBytes), keys, step != 0);
      } else {
        Product::template multiply_shared<T, ptx::RowsAlong::k, ptx::RowsAlong::mn>(
            dq, ds.advance(step / 4 * kQPanelBytes + step % 4 * 32), keys, step != 0);
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

  // Stores dS or P for the products that read it from shared memory.
  static __device__ __forceinline__ void store_operand(const uint32_t (&operand)[kSteps][4],
                                                       const char* buffer, const Part& part) {
    const uint32_t to = ptx::shared_address(buffer) + part.ds_store;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if constexpr (kHalfColumns) {
        ptx::stmatrix_x4(to ^ i * 32, operand[i]);
      } else {
        ptx::stmatrix_x4_trans(to + i * 16 * kRowBytes, operand[i]);
      }
    }
  }
};

}  // namespace flashbench::kernels::sm90
