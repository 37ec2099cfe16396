// The references of a problem's outputs, computed by the host's threads or by a GPU: two
// implementations of the same formulas (docs/verifying.md), tested against each other.
#pragma once

#include <cstddef>
#include <vector>

#include "attention/host_memory.h"
#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/device.h"
#include "verify/reference.h"
#include "verify/sampling.h"
#include "verify/storage.h"

namespace flashbench::verify {

// The exact forward pass of every row, rounded, from which a backward pass starts.
struct ExactForward {
  HostVector<std::byte> o;       // in the problem's dtype and layout
  std::vector<float> logsumexp;  // at Problem::query_index
};

struct References {
  std::vector<Reference> tensors;  // O and logsumexp, or dQ, dK and dV, of the selected rows
  ExactForward forward;            // for the backward pass only
};

// `inputs` are on the host. The storage is that of the providers. The selection must outlive the
// references.
References references_on_host(const Problem&, const Inputs&, const Storage&, const Selection&,
                              ThreadPool&);
ExactForward exact_forward_on_host(const Problem&, const Inputs&, ThreadPool&);

// The same on a GPU (cuda_references.cu; cuda_references_none.cpp in a build without CUDA). It
// allocates memory outside the device's account, so that it is in no provider's peak, and frees it.
References references_on_gpu(const Problem&, const Inputs&, const Storage&, const Selection&,
                             Device&);

// Whether the GPU has the memory for it, and is faster than the host.
bool better_on_gpu(const Problem&, const Selection&, Device&);

}  // namespace flashbench::verify
