// Steps of wgmma in a build without CUDA, where no GPU device can ask for them.
#include <stdexcept>

#include "measure/accumulator_bits.h"

namespace flashbench {

AddProducts wgmma_add_products(Device&) {
  throw std::logic_error("a build without CUDA has no GPU to multiply on");
}

}  // namespace flashbench
