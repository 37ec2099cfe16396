#include "providers/providers.h"

namespace flashbench {

std::vector<std::unique_ptr<Provider>> make_cuda_providers() {
  std::vector<std::unique_ptr<Provider>> list;
  list.push_back(make_tiled_provider(DeviceKind::cuda));
  return list;
}

}  // namespace flashbench
