#include "providers/providers.h"

namespace flashbench {

std::vector<std::unique_ptr<Provider>> make_cuda_providers() {
  std::vector<std::unique_ptr<Provider>> list;
  list.push_back(make_cuda_naive_provider(CudaNaiveScores::own_dtype));
  list.push_back(make_cuda_naive_provider(CudaNaiveScores::fp32));
  list.push_back(make_blocked_provider());
  list.push_back(make_tiled_provider(DeviceKind::cuda));
  for (const char* family :
       {"simt", "fa1", "sm80", "sm80_deterministic", "sm90", "sm90_decode", "sm90_deterministic"}) {
    list.push_back(make_tiled_provider(DeviceKind::cuda, family));
  }
  list.push_back(make_cudnn_provider(CudnnSums::any_order));
  list.push_back(make_cudnn_provider(CudnnSums::fixed_order));
  return list;
}

}  // namespace flashbench
