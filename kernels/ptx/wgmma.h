// wgmma.mma_async.m64nNk16 with 16-bit inputs, and m64nNk32 with e4m3 inputs, and fp32 accumulators
// (sm_90a): the asynchronous matrix product of a warpgroup.
// docs.nvidia.com/cuda/parallel-thread-execution: "Asynchronous warpgroup level matrix
// instructions"
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace flashbench::ptx {

// Required before the first wgmma, and after any change to registers that a wgmma uses.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

// Closes a group of all wgmmas since the last group.
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

// Waits until at most `kPending` of the latest groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
}

// Keeps the compiler from moving accesses to these registers across this point. It would otherwise
// move accesses to accumulators across a wait, because it sees no dependency between them.
template <int kCount>
__device__ __forceinline__ void keep_here(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i]) : : "memory");
}

// Copies registers at this point, behind the wait for the product that reads `to`. The compiler
// moves a plain copy ahead of the wait, and then ends each product before it starts the next.
template <int kCount>
__device__ __forceinline__ void copy_here(uint32_t (&to)[kCount][4],
                                          const uint32_t (&from)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < 4 * kCount; ++i) {
    asm volatile("mov.b32 %0, %1;" : "=r"(to[i / 4][i % 4]) : "r"(from[i / 4][i % 4]) : "memory");
  }
}

// The descriptor of a matrix in shared memory, in groups of 8 rows. Rows have 128 bytes with the
// 128-byte swizzle (16-byte chunk c of row r is stored at chunk c ^ r % 8), or 64 bytes with the
// 64-byte swizzle (at chunk c ^ r / 2 % 4). Groups follow each other, and each is aligned to its
// size.
template <int kRowBytes>
class SwizzledMatrix {
 public:
  static_assert(kRowBytes == 128 || kRowBytes == 64);

  // `panel_bytes` is the distance to the next 128 bytes along the rows. It is used only where rows
  // run along M or N.
  __device__ __forceinline__ SwizzledMatrix(uint32_t address, uint32_t panel_bytes)
      : low_((address & 0x3FFFF) >> 4 | (panel_bytes >> 4) << 16) {}

  // The matrix `bytes` (a multiple of 16) further on. Only the low word of the descriptor changes:
  // this takes one addition between two wgmmas, where 64 bits would take three.
  __device__ __forceinline__ SwizzledMatrix advance(int bytes) const {
    SwizzledMatrix moved = *this;
    moved.low_ += static_cast<uint32_t>(bytes >> 4);
    return moved;
  }

  // The same, which all lanes have, in a form that the compiler computes once, here, and keeps in a
  // uniform register. It would otherwise derive it from the address again at each use.
  __device__ __forceinline__ SwizzledMatrix computed_here() const {
    SwizzledMatrix computed = *this;
    computed.low_ = __shfl_sync(~0u, low_, 0);
    return computed;
  }

  __device__ __forceinline__ uint64_t descriptor() const {
    constexpr uint64_t kEightRows = 8 * kRowBytes >> 4, kSwizzle = kRowBytes == 128 ? 1 : 2;
    return low_ | kEightRows << 32 | kSwizzle << 62;
  }

 private:
  uint32_t low_;
};
using WgmmaMatrix = SwizzledMatrix<128>;

// The dimension along which the rows of a matrix in shared memory run: K, or else M or N.
enum class RowsAlong { k, mn };

// Wgmma<kN>: D [64, kN] is in registers. Lane l of warp w holds rows 16w + l/4 (d[4j], d[4j + 1])
// and 8 further (d[4j + 2], d[4j + 3]), columns 8j + 2(l%4) + {0, 1}.
//   multiply_shared: D = A B (`accumulate`: D += A B), A [64, 16] and B [16, kN] in shared memory,
//     with rows of 128 bytes that run along K, or along M (A) or N (B).
//   multiply_registers: the same for A in registers (mma_m16n8k16's, for rows 16w to 16w + 15).
//   multiply_shared_e4m3, multiply_registers_e4m3: the same for A [64, 32] and B [32, kN] of e4m3,
//     whose rows run along K. In registers, a[0] has columns 4(l%4) + {0, 1, 2, 3} of row
//     16w + l/4, a[1] those of the row 8 further, and a[2] and a[3] the columns 16 further.
template <int kN>
struct Wgmma;

// The registers of D, by number: as operands in the text of an instruction (TEXT), and as arguments
// of asm (D).
#define FLASHBENCH_TEXT_8(a, b, c, d, e, f, g, h) \
  "%" #a ", %" #b ", %" #c ", %" #d ", %" #e ", %" #f ", %" #g ", %" #h
#define FLASHBENCH_D_8(i)                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define FLASHBENCH_TEXT_16 \
  FLASHBENCH_TEXT_8(0, 1, 2, 3, 4, 5, 6, 7) ", " FLASHBENCH_TEXT_8(8, 9, 10, 11, 12, 13, 14, 15)
#define FLASHBENCH_D_16 FLASHBENCH_D_8(0), FLASHBENCH_D_8(8)
#define FLASHBENCH_TEXT_20 FLASHBENCH_TEXT_16 ", %16, %17, %18, %19"
#define FLASHBENCH_D_20 FLASHBENCH_D_16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define FLASHBENCH_TEXT_32                   \
  FLASHBENCH_TEXT_16 ", " FLASHBENCH_TEXT_8( \
      16, 17, 18, 19, 20, 21, 22, 23) ", " FLASHBENCH_TEXT_8(24, 25, 26, 27, 28, 29, 30, 31)
#define FLASHBENCH_D_32 FLASHBENCH_D_16, FLASHBENCH_D_8(16), FLASHBENCH_D_8(24)
#define FLASHBENCH_TEXT_40 FLASHBENCH_TEXT_32 ", " FLASHBENCH_TEXT_8(32, 33, 34, 35, 36, 37, 38, 39)
#define FLASHBENCH_D_40 FLASHBENCH_D_32, FLASHBENCH_D_8(32)
#define FLASHBENCH_TEXT_48 FLASHBENCH_TEXT_40 ", " FLASHBENCH_TEXT_8(40, 41, 42, 43, 44, 45, 46, 47)
#define FLASHBENCH_D_48 FLASHBENCH_D_40, FLASHBENCH_D_8(40)
#define FLASHBENCH_TEXT_64                   \
  FLASHBENCH_TEXT_48 ", " FLASHBENCH_TEXT_8( \
      48, 49, 50, 51, 52, 53, 54, 55) ", " FLASHBENCH_TEXT_8(56, 57, 58, 59, 60, 61, 62, 63)
#define FLASHBENCH_D_64 FLASHBENCH_D_48, FLASHBENCH_D_8(48), FLASHBENCH_D_8(56)
#define FLASHBENCH_TEXT_96                                                       \
  FLASHBENCH_TEXT_64                                                             \
  ", " FLASHBENCH_TEXT_8(64, 65, 66, 67, 68, 69, 70, 71) ", " FLASHBENCH_TEXT_8( \
      72, 73, 74, 75, 76, 77, 78,                                                \
      79) ", " FLASHBENCH_TEXT_8(80, 81, 82, 83, 84, 85, 86,                     \
                                 87) ", " FLASHBENCH_TEXT_8(88, 89, 90, 91, 92, 93, 94, 95)
#define FLASHBENCH_D_96 \
  FLASHBENCH_D_64, FLASHBENCH_D_8(64), FLASHBENCH_D_8(72), FLASHBENCH_D_8(80), FLASHBENCH_D_8(88)
#define FLASHBENCH_TEXT_128                                                                      \
  FLASHBENCH_TEXT_96                                                                             \
  ", " FLASHBENCH_TEXT_8(96, 97, 98, 99, 100, 101, 102, 103) ", " FLASHBENCH_TEXT_8(             \
      104, 105, 106, 107, 108, 109, 110,                                                         \
      111) ", " FLASHBENCH_TEXT_8(112, 113, 114, 115, 116, 117, 118,                             \
                                  119) ", " FLASHBENCH_TEXT_8(120, 121, 122, 123, 124, 125, 126, \
                                                              127)
#define FLASHBENCH_D_128 \
  FLASHBENCH_D_96, FLASHBENCH_D_8(96), FLASHBENCH_D_8(104), FLASHBENCH_D_8(112), FLASHBENCH_D_8(120)

// D has `d_count` registers; n1 to n4 are the numbers of the operands after D.
#define FLASHBENCH_WGMMA_SHARED(n, type, d_count, n1, n2, n3, n4)                             \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n2                                       \
               ", 0;\n"                                                                       \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type                \
               " {" FLASHBENCH_TEXT_##d_count "}, %" #d_count ", %" #n1 ", p, 1, 1, %" #n3    \
                                              ", %" #n4 ";\n}\n"                              \
               : FLASHBENCH_D_##d_count                                                       \
               : "l"(a.descriptor()), "l"(b.descriptor()), "r"(static_cast<int>(accumulate)), \
                 "n"(static_cast<int>(kRowsOfA)), "n"(static_cast<int>(kRowsOfB)))
#define FLASHBENCH_WGMMA_REGISTERS(n, type, d_count, n1, n2, n3, n4, n5, n6)                 \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n5                                      \
               ", 0;\n"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type               \
               " {" FLASHBENCH_TEXT_##d_count "}, {%" #d_count ", %" #n1 ", %" #n2 ", %" #n3 \
                                              "}, %" #n4 ", p, 1, 1, %" #n6 ";\n}\n"         \
               : FLASHBENCH_D_##d_count                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor()),            \
                 "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(kRowsOfB)))
#define FLASHBENCH_WGMMA_SHARED_E4M3(n, d_count, n1, n2)                                  \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n2                                   \
               ", 0;\n"                                                                   \
               "wgmma.mma_async.sync.aligned.m64n" #n                                     \
               "k32.f32.e4m3.e4m3"                                                        \
               " {" FLASHBENCH_TEXT_##d_count "}, %" #d_count ", %" #n1 ", p, 1, 1;\n}\n" \
               : FLASHBENCH_D_##d_count                                                   \
               : "l"(a.descriptor()), "l"(b.descriptor()), "r"(static_cast<int>(accumulate)))
#define FLASHBENCH_WGMMA_REGISTERS_E4M3(n, d_count, n1, n2, n3, n4, n5)                      \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n5                                      \
               ", 0;\n"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" #n                                        \
               "k32.f32.e4m3.e4m3"                                                           \
               " {" FLASHBENCH_TEXT_##d_count "}, {%" #d_count ", %" #n1 ", %" #n2 ", %" #n3 \
                                              "}, %" #n4 ", p, 1, 1;\n}\n"                   \
               : FLASHBENCH_D_##d_count                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor()),            \
                 "r"(static_cast<int>(accumulate)))

#define FLASHBENCH_WGMMA(n, d_count, n1, n2, n3, n4, n5, n6)                                     \
  template <>                                                                                    \
  struct Wgmma<n> {                                                                              \
    template <typename T, RowsAlong kRowsOfA = RowsAlong::k, RowsAlong kRowsOfB = RowsAlong::k>  \
    static __device__ __forceinline__ void multiply_shared(float (&d)[n / 2], WgmmaMatrix a,     \
                                                           WgmmaMatrix b, bool accumulate) {     \
      if constexpr (std::is_same_v<T, __half>) {                                                 \
        FLASHBENCH_WGMMA_SHARED(n, "f16", d_count, n1, n2, n3, n4);                              \
      } else {                                                                                   \
        FLASHBENCH_WGMMA_SHARED(n, "bf16", d_count, n1, n2, n3, n4);                             \
      }                                                                                          \
    }                                                                                            \
    template <typename T, RowsAlong kRowsOfB = RowsAlong::mn>                                    \
    static __device__ __forceinline__ void multiply_registers(float (&d)[n / 2],                 \
                                                              const uint32_t (&a)[4],            \
                                                              WgmmaMatrix b,                     \
                                                              bool accumulate = true) {          \
      if constexpr (std::is_same_v<T, __half>) {                                                 \
        FLASHBENCH_WGMMA_REGISTERS(n, "f16", d_count, n1, n2, n3, n4, n5, n6);                   \
      } else {                                                                                   \
        FLASHBENCH_WGMMA_REGISTERS(n, "bf16", d_count, n1, n2, n3, n4, n5, n6);                  \
      }                                                                                          \
    }                                                                                            \
    template <int kRowBytesA, int kRowBytesB>                                                    \
    static __device__ __forceinline__ void multiply_shared_e4m3(float (&d)[n / 2],               \
                                                                SwizzledMatrix<kRowBytesA> a,    \
                                                                SwizzledMatrix<kRowBytesB> b,    \
                                                                bool accumulate) {               \
      FLASHBENCH_WGMMA_SHARED_E4M3(n, d_count, n1, n2);                                          \
    }                                                                                            \
    template <int kRowBytesB>                                                                    \
    static __device__ __forceinline__ void multiply_registers_e4m3(float (&d)[n / 2],            \
                                                                   const uint32_t (&a)[4],       \
                                                                   SwizzledMatrix<kRowBytesB> b, \
                                                                   bool accumulate) {            \
      FLASHBENCH_WGMMA_REGISTERS_E4M3(n, d_count, n1, n2, n3, n4, n5);                           \
    }                                                                                            \
  }

FLASHBENCH_WGMMA(32, 16, 17, 18, 19, 20, 21, 22);
FLASHBENCH_WGMMA(40, 20, 21, 22, 23, 24, 25, 26);
FLASHBENCH_WGMMA(64, 32, 33, 34, 35, 36, 37, 38);
FLASHBENCH_WGMMA(80, 40, 41, 42, 43, 44, 45, 46);
FLASHBENCH_WGMMA(96, 48, 49, 50, 51, 52, 53, 54);
FLASHBENCH_WGMMA(128, 64, 65, 66, 67, 68, 69, 70);
FLASHBENCH_WGMMA(192, 96, 97, 98, 99, 100, 101, 102);
FLASHBENCH_WGMMA(256, 128, 129, 130, 131, 132, 133, 134);

#undef FLASHBENCH_WGMMA
#undef FLASHBENCH_WGMMA_REGISTERS_E4M3
#undef FLASHBENCH_WGMMA_SHARED_E4M3
#undef FLASHBENCH_WGMMA_REGISTERS
#undef FLASHBENCH_WGMMA_SHARED
#undef FLASHBENCH_D_128
#undef FLASHBENCH_TEXT_128
#undef FLASHBENCH_D_96
#undef FLASHBENCH_TEXT_96
#undef FLASHBENCH_D_64
#undef FLASHBENCH_TEXT_64
#undef FLASHBENCH_D_48
#undef FLASHBENCH_TEXT_48
#undef FLASHBENCH_D_40
#undef FLASHBENCH_TEXT_40
#undef FLASHBENCH_D_32
#undef FLASHBENCH_TEXT_32
#undef FLASHBENCH_D_20
#undef FLASHBENCH_TEXT_20
#undef FLASHBENCH_D_16
#undef FLASHBENCH_TEXT_16
#undef FLASHBENCH_D_8
#undef FLASHBENCH_TEXT_8

}  // namespace flashbench::ptx
