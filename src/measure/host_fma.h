// Fused multiply-adds of the host, and nothing else.
#pragma once

#include <cstdint>

namespace flashbench::host_fma {

// On the calling thread: `steps` of independent chains of fp32 multiply-adds, in the widest vectors
// that this processor has. The result is what a compiler cannot leave out.
float run(int64_t steps);
double flops(int64_t steps);

}  // namespace flashbench::host_fma
