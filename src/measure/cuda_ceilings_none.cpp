// The GPU's ceilings in a build without CUDA, where no GPU device can ask for them.
#include <stdexcept>

#include "measure/round_ceilings.h"

namespace flashbench {

std::unique_ptr<GemmCeiling> make_cuda_gemm(Device&, Dtype) {
  throw std::logic_error("a build without CUDA has no GPU to multiply on");
}

std::vector<CeilingWork> cuda_ceilings(Device&) {
  throw std::logic_error("a build without CUDA has no GPU to measure");
}

std::vector<CeilingWork> cuda_round_ceilings(Device&, const Problem&, const Inputs&,
                                             const Outputs&) {
  throw std::logic_error("a build without CUDA has no GPU to measure");
}

}  // namespace flashbench
