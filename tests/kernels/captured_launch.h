// The arguments and the grid with which a kernel is launched, for tests that launch another kernel
// in its place.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "device/cuda_call.h"

namespace flashbench::kernels {

template <typename Arguments>
struct CapturedLaunch {
  Arguments arguments;
  dim3 grid;
};

enum class Which { first, last };

// Of the first or last kernel that launch() queues to the stream.
template <typename Arguments, typename Launch>
CapturedLaunch<Arguments> captured_launch(const Launch& launch, cudaStream_t stream,
                                          Which which = Which::last) {
  FLASHBENCH_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch();
  cudaGraph_t graph = nullptr;
  FLASHBENCH_CUDA(cudaStreamEndCapture(stream, &graph));
  size_t count = 1;
  cudaGraphNode_t node;
  FLASHBENCH_CUDA(cudaGraphGetRootNodes(graph, &node, &count));
  while (which == Which::last) {
    cudaGraphNode_t next;
    cudaGraphEdgeData edge;  // of a launch that starts early, it cannot be left out
    FLASHBENCH_CUDA(cudaGraphNodeGetDependentNodes(node, &next, &edge, &count));
    if (count == 0) break;
    node = next;
  }
  cudaKernelNodeParams launched;
  FLASHBENCH_CUDA(cudaGraphKernelNodeGetParams(node, &launched));
  const CapturedLaunch<Arguments> captured{*static_cast<const Arguments*>(launched.kernelParams[0]),
                                           launched.gridDim};
  FLASHBENCH_CUDA(cudaGraphDestroy(graph));
  return captured;
}

}  // namespace flashbench::kernels
