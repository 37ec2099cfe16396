#include "providers/providers.h"

namespace flashbench {

const std::vector<std::unique_ptr<Provider>>& all_providers() {
  static const auto providers = [] {
    std::vector<std::unique_ptr<Provider>> list;
    list.push_back(make_naive_provider());
    list.push_back(make_tiled_provider(DeviceKind::cpu));
    for (auto& provider : make_split_providers()) list.push_back(std::move(provider));
    for (auto& provider : make_cuda_providers()) list.push_back(std::move(provider));
    return list;
  }();
  return providers;
}

}  // namespace flashbench
