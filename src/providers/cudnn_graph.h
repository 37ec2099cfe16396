// Attention as an operation graph of cuDNN: whether it can, the plan that it chooses, the launch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "attention/tensors.h"
#include "providers/provider.h"

namespace flashbench {

// In cuDNN's own words, or its frontend's.
class CudnnError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A sentence that says why there is no cuDNN here; empty if there is.
std::optional<std::string> why_no_cudnn();

class CudnnGraph {
 public:
  virtual ~CudnnGraph() = default;

  // Makes the first plan that works of those that cuDNN's heuristic proposes (its mode A), which
  // may compile kernels. Its launches go to `stream`, a cudaStream_t. Throws Unsupported,
  // CudnnError.
  virtual void build_plan(void* stream) = 0;

  // Of the plan: cuDNN's name of the engine and its settings; what it needs beside the tensors.
  virtual std::string plan_name() const = 0;
  virtual int64_t workspace_bytes() const = 0;

  // Whether the graph is for tensors with these strides.
  virtual bool fits(const Inputs&, const Outputs&) const = 0;

  // Launches the plan. Throws CudnnError.
  virtual void run(const Inputs&, const Outputs&, void* workspace) = 0;
};

// For tensors with the strides of these views, whose data is not read, on the current GPU, which
// has this compute capability (e.g. 90). `deterministic` is about the backward pass. Throws
// Unsupported if cuDNN refuses the graph, CudnnError if it cannot be asked. Only where
// why_no_cudnn() is empty.
std::unique_ptr<CudnnGraph> make_cudnn_graph(const Problem&, bool deterministic,
                                             int compute_capability, const Inputs&, const Outputs&);

}  // namespace flashbench
