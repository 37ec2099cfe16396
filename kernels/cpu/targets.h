// Which SIMD targets the kernels are compiled for; included before any Highway header.
//
// AVX-512, AVX2 and plain scalar code on x86 (NEON on ARM). Without SSSE3 and SSE4, because every
// x86 server since 2015 has AVX2 and each target costs seconds of build time; without the scalable
// vectors of SVE and RISC-V, because C++ cannot hold them in the arrays of the micro-kernel.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
