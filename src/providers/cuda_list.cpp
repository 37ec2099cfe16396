#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

// Of our GPU kernels, each once, in the order of their list.
std::vector<std::string_view> families() {
  std::vector<std::string_view> found;
  for (const kernels::AttentionKernel* kernel : kernels::cuda_kernels()) {
    if (std::ranges::find(found, kernel->family) == found.end()) found.push_back(kernel->family);
  }
  return found;
}

}  // namespace

std::vector<std::unique_ptr<Provider>> make_cuda_providers() {
  std::vector<std::unique_ptr<Provider>> list;
  list.push_back(make_cuda_naive_provider(CudaNaiveScores::own_dtype));
  list.push_back(make_cuda_naive_provider(CudaNaiveScores::fp32));
  list.push_back(make_blocked_provider());
  list.push_back(make_tiled_provider(DeviceKind::cuda));
  for (const std::string_view family : families()) {
    list.push_back(make_tiled_provider(DeviceKind::cuda, family));
  }
  for (auto& provider : make_split_providers(DeviceKind::cuda)) list.push_back(std::move(provider));
  list.push_back(make_cudnn_provider(CudnnSums::any_order));
  list.push_back(make_cudnn_provider(CudnnSums::fixed_order));
  return list;
}

}  // namespace flashbench
