#include "providers/cudnn_graph.h"

namespace flashbench {

std::optional<std::string> why_no_cudnn() {
  return "this build leaves cuDNN out: " FLASHBENCH_CUDNN_LEFT_OUT;
}

std::unique_ptr<CudnnGraph> make_cudnn_graph(const Problem&, bool, int, const Inputs&,
                                             const Outputs&) {
  throw Unsupported(*why_no_cudnn());
}

}  // namespace flashbench
