#include "providers/providers.h"

namespace flashbench {

const std::vector<std::unique_ptr<Provider>>& all_providers() {
  static const auto providers = [] {
    std::vector<std::unique_ptr<Provider>> list;
    list.push_back(make_naive_provider());
    list.push_back(make_tiled_provider(DeviceKind::cpu));
    list.push_back(make_emulated_provider("emulated", {true, 128}));
    list.push_back(make_emulated_provider("emulated:fp22", {true, 0}));
    list.push_back(make_emulated_provider("emulated:o_e4m3", {true, 128}, Dtype::e4m3));
    for (auto& provider : make_split_providers(DeviceKind::cpu)) {
      list.push_back(std::move(provider));
    }
    for (auto& provider : make_cuda_providers()) list.push_back(std::move(provider));
    return list;
  }();
  return providers;
}

}  // namespace flashbench
