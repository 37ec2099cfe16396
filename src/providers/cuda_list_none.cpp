#include "providers/providers.h"

namespace flashbench {

std::vector<std::unique_ptr<Provider>> make_cuda_providers() {
  return {};
}

}  // namespace flashbench
