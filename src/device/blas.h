// Matrix products on the host, by OpenBLAS. It is opened when it is first needed: by then its
// threads are switched off and its kernels are chosen, neither of which it allows once it is
// loaded; and a process that multiplies nothing does without it.
//
// Calls are serial and may come from several threads at once: OpenBLAS's own threads go on spinning
// after a call, which would take time from whatever is measured next.
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

// A sentence that says why there is no OpenBLAS to use, and what to do; empty if there is one.
std::optional<std::string> why_none();

// A sentence that says why this many threads cannot multiply at once; empty if they can. Where the
// address space is limited (ulimit -v), OpenBLAS would wait for ever for room that does not come.
std::optional<std::string> why_no_room(int threads);

// How OpenBLAS was built, e.g. "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."; "" if there is none.
std::string configuration();

// The processor that its kernels are for, e.g. "SkylakeX"; "" if there is none.
std::string core();

// The core to ask OpenBLAS for on this processor: by what the processor can do. OpenBLAS chooses by
// model number, and takes kernels of 2006 for a model that is newer than itself. Empty: its own
// choice.
std::string core_for_this_processor();

}  // namespace flashbench::blas
