// The references of a problem's outputs, computed by the host's threads or by a GPU: the same
// formulas (docs/measuring.md) written twice, and tested against each other.
#pragma once

#include <cstddef>
#include <vector>

#include "attention/host_memory.h"
#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/device.h"
#include "verify/reference.h"
#include "verify/sampling.h"

namespace flashbench::verify {

// The exact forward pass of every row, rounded: what a backward pass starts from.
struct ExactForward {
  HostVector<std::byte> o;       // in the problem's dtype and layout
  std::vector<float> logsumexp;  // [batch, q_heads, q_len]
};

struct References {
  std::vector<Reference> tensors;  // O and logsumexp, or dQ, dK and dV, of the selected rows
  ExactForward forward;            // for the backward pass only
};

// `inputs` are on the host. `scores`: the dtype in which providers keep S and dP. The selection
// must outlive the references.
References references_on_host(const Problem&, const Inputs&, Dtype scores, const Selection&,
                              ThreadPool&);
ExactForward exact_forward_on_host(const Problem&, const Inputs&, ThreadPool&);

// The same on a GPU (cuda_references.cu; cuda_references_none.cpp in a build without CUDA). Memory
// is taken beside the device's account, so that no provider's peak has it, and given back.
References references_on_gpu(const Problem&, const Inputs&, Dtype scores, const Selection&,
                             Device&);

// Whether that is sooner done than on the host, and there is memory for it.
bool better_on_gpu(const Problem&, const Selection&, Device&);

}  // namespace flashbench::verify
