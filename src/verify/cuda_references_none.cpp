// For a build without CUDA, where no GPU can compute the references.
#include <stdexcept>

#include "verify/references.h"

namespace flashbench::verify {

References references_on_gpu(const Problem&, const Inputs&, const Storage&, const Selection&,
                             Device&) {
  throw std::logic_error("references on a GPU in a build without CUDA");
}

bool better_on_gpu(const Problem&, const Selection&, Device&) {
  return false;
}

}  // namespace flashbench::verify
