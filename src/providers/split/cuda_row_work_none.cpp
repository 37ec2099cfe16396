// The work on rows of a build without CUDA.
#include <stdexcept>

#include "providers/split/row_work.h"

namespace flashbench {

std::unique_ptr<RowWork> make_cuda_row_work() {
  throw std::logic_error("a build without CUDA has no GPU");
}

}  // namespace flashbench
