// A loop of nothing but fused multiply-adds on the host.
#pragma once

#include <cstdint>

namespace flashbench::host_fma {

// Runs `steps` steps of independent chains of fp32 multiply-adds on the calling thread, in the
// widest vectors of this processor. Returns a value that depends on all of them, so that the
// compiler cannot remove them.
float run(int64_t steps);
double flops(int64_t steps);

}  // namespace flashbench::host_fma
