// The tensors of a forward pass, as kernels that read memory by its address receive them.
#pragma once

#include "attention/tensors.h"
#include "kernels/common/strides.h"

namespace flashbench::kernels {

// The strides of paged K and V count pages for requests.
struct ForwardTensors {
  const void *q, *k, *v;
  void* o;
  float* logsumexp;
  Strides q_strides, k_strides, v_strides, o_strides;
};

inline ForwardTensors forward_tensors(const Inputs& in, const Outputs& out) {
  return {.q = in.q.data,
          .k = in.k.data,
          .v = in.v.data,
          .o = out.o.data,
          .logsumexp = out.logsumexp,
          .q_strides = strides_of(in.q),
          .k_strides = strides_of(in.k),
          .v_strides = strides_of(in.v),
          .o_strides = strides_of(out.o)};
}

}  // namespace flashbench::kernels
