// Selects the SIMD targets of the kernels. Include it before any Highway header.
//
// The targets are AVX-512, AVX2 and plain scalar code on x86, and NEON on ARM. SSSE3 and SSE4 are
// left out because every x86 server since 2015 has AVX2 and each target costs seconds of build
// time. The scalable vectors of SVE and RISC-V are left out because C++ cannot hold them in the
// arrays of the micro-kernel.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
