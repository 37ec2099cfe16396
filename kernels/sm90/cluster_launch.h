// Launches a CUDA kernel whose thread blocks form clusters.
#pragma once

#include <cstdint>

#include "kernels/common/launch.h"

namespace flashbench::kernels::sm90 {

// The thread blocks of a launch. `cluster_size` neighbours in the third dimension form a cluster.
struct ClusterGrid {
  int64_t x = 1, y = 1, z = 1;
  int cluster_size = 1;
};

namespace detail {

void launch_clusters(const void* function, const ClusterGrid&, int threads, int shared_bytes,
                     void** arguments, Stream);

}  // namespace detail

// Throws CudaError if the kernel cannot be launched.
template <typename Arguments>
void launch_clusters(const CudaKernel<Arguments>& kernel, const ClusterGrid& grid,
                     const Arguments& arguments, Stream stream) {
  void* pointers[] = {const_cast<Arguments*>(&arguments)};
  detail::launch_clusters(reinterpret_cast<const void*>(kernel.function), grid, kernel.threads,
                          kernel.shared_bytes, pointers, stream);
}

}  // namespace flashbench::kernels::sm90
