// Attention as an operation graph of cuDNN: whether cuDNN supports it, the plan that it chooses,
// the launch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/tensors.h"
#include "providers/provider.h"

namespace flashbench {

// The message is cuDNN's or its frontend's.
class CudnnError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A sentence that says why there is no cuDNN here; empty if there is one.
std::optional<std::string> why_no_cudnn();

class CudnnGraph {
 public:
  virtual ~CudnnGraph() = default;

  // Builds the first plan that works among those that cuDNN's heuristic (mode A) proposes. This may
  // compile kernels. Launches go to `stream`, a cudaStream_t. Throws Unsupported, CudnnError.
  virtual void build_plan(void* stream) = 0;

  // The plan's engine and settings, as cuDNN names them, and its workspace.
  virtual std::string plan_name() const = 0;
  virtual int64_t workspace_bytes() const = 0;

  // Whether the graph was built for tensors with these strides.
  virtual bool fits(const Inputs&, const Outputs&) const = 0;

  // Of a graph for requests of different lengths, or with a paged K and V: their lengths and where
  // they begin in each ragged tensor, as cuDNN reads them in device memory. Empty for other graphs.
  virtual const std::vector<int32_t>& lengths() const = 0;

  // Of a graph on bytes: numbers that cuDNN reads in device memory, and room for some that it
  // writes. Empty for other graphs.
  virtual const std::vector<float>& scalars() const = 0;

  // Launches the plan. `lengths` and `scalars` are those above, on the device. A ragged logsumexp
  // is [q_heads, tokens] in a forward pass and [tokens, q_heads] in a backward pass. O in e4m3 has
  // the factor that V has. Throws CudnnError.
  virtual void run(const Inputs&, const Outputs&, const int32_t* lengths, float* scalars,
                   void* workspace) = 0;
};

// Makes a graph for tensors with the strides of these views, whose data is not read, on the current
// GPU with this compute capability (e.g. 90). `deterministic` applies to the backward pass. Throws
// Unsupported if cuDNN refuses the graph, CudnnError if it cannot be asked. Call only if
// why_no_cudnn() is empty.
std::unique_ptr<CudnnGraph> make_cudnn_graph(const Problem&, bool deterministic,
                                             int compute_capability, const Inputs&, const Outputs&);

}  // namespace flashbench
