// Captured launches: to launch them again, or for their arguments and grid, with which tests launch
// another kernel in their place.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "device/cuda_call.h"

namespace flashbench::kernels {

// What launch() queues to the stream. Whoever calls it destroys the graph.
template <typename Launch>
cudaGraph_t captured_graph(const Launch& launch, cudaStream_t stream) {
  FLASHBENCH_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch();
  cudaGraph_t graph = nullptr;
  FLASHBENCH_CUDA(cudaStreamEndCapture(stream, &graph));
  return graph;
}

// All that launch() queues to the stream, to be launched there again: as edit() leaves the graph.
class CapturedGraph {
 public:
  template <typename Launch, typename Edit>
  CapturedGraph(const Launch& launch, cudaStream_t stream, const Edit& edit) : stream_(stream) {
    cudaGraph_t graph = captured_graph(launch, stream);
    edit(graph);
    FLASHBENCH_CUDA(cudaGraphInstantiate(&executable_, graph, 0));
    FLASHBENCH_CUDA(cudaGraphDestroy(graph));
  }
  template <typename Launch>
  CapturedGraph(const Launch& launch, cudaStream_t stream)
      : CapturedGraph(launch, stream, [](cudaGraph_t) {}) {}
  ~CapturedGraph() { cudaGraphExecDestroy(executable_); }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void launch() const { FLASHBENCH_CUDA(cudaGraphLaunch(executable_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

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
  cudaGraph_t graph = captured_graph(launch, stream);
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
