// Matrix products on the host, by OpenBLAS. The library is opened when it is first needed, after
// its threads have been switched off and its kernels chosen, which is impossible once it is loaded.
// A process that multiplies nothing does not need it.
//
// Each call is serial; several threads may call at once. OpenBLAS's own threads are not used
// because they keep spinning after a call, which would slow down the next measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace flashbench::blas {

enum class Transpose { no, yes };

// A row-major matrix: rows start `stride` elements apart.
template <typename T>
struct Operand {
  T* data;
  int64_t stride;
};

// C [m, n] = alpha op(A) op(B) + beta C; the inner dimension is k.
void gemm(Transpose op_a, Transpose op_b, int64_t m, int64_t n, int64_t k, float alpha,
          Operand<const float> a, Operand<const float> b, float beta, Operand<float> c);
void gemm(Transpose op_a, Transpose op_b, int64_t m, int64_t n, int64_t k, double alpha,
          Operand<const double> a, Operand<const double> b, double beta, Operand<double> c);

// A sentence that says why there is no usable OpenBLAS, and what to do; empty if there is one.
std::optional<std::string> why_none();

// A sentence that says why this many threads cannot multiply at once; empty if they can. If the
// address space is limited (ulimit -v), OpenBLAS would wait for memory for ever.
std::optional<std::string> why_no_room(int threads);

// How OpenBLAS was built, e.g. "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."; "" if there is none.
std::string configuration();

// The processor that OpenBLAS's kernels are for, e.g. "SkylakeX"; "" if there is no OpenBLAS.
std::string core();

// The core to request from OpenBLAS, chosen by this processor's instruction set; empty for
// OpenBLAS's own choice. OpenBLAS chooses by model number, and uses kernels from 2006 for a model
// that is newer than itself.
std::string core_for_this_processor();

}  // namespace flashbench::blas
