#include "kernels/sm90/cluster_launch.h"

#include <cuda_runtime_api.h>

#include "device/cuda_call.h"

namespace flashbench::kernels::sm90::detail {

void launch_clusters(const void* function, const ClusterGrid& grid, int threads, int shared_bytes,
                     void** arguments, Stream stream) {
  FLASHBENCH_CUDA(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {1, 1, static_cast<unsigned>(grid.cluster_size)};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                        static_cast<unsigned>(grid.z));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream.cuda);
  config.attrs = &cluster;
  config.numAttrs = grid.cluster_size > 1 ? 1 : 0;
  // A failure also sets the last error; cudaGetLastError below returns and clears it.
  (void)cudaLaunchKernelExC(&config, function, arguments);
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace flashbench::kernels::sm90::detail
