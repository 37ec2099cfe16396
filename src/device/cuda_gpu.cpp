#include "device/cuda_gpu.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/cuda_call.h"

namespace flashbench {

namespace {

constexpr int kLeastComputeCapability = 80;

int attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  FLASHBENCH_CUDA(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace

void require_gpu(int index) {
  int count = 0;
  FLASHBENCH_CUDA(cudaGetDeviceCount(&count));
  if (index >= count) {
    throw NoDevice(fmt::format("there is no cuda:{}: this machine has {} NVIDIA GPU{}", index,
                               count, count == 1 ? "" : "s"));
  }
  const int capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                         attribute(cudaDevAttrComputeCapabilityMinor, index);
  if (capability < kLeastComputeCapability) {
    throw NoDevice(fmt::format("cuda:{} has compute capability {}.{}; flashbench needs {}.{}",
                               index, capability / 10, capability % 10,
                               kLeastComputeCapability / 10, kLeastComputeCapability % 10));
  }
}

DeviceInfo describe_gpu(int index) {
  cudaDeviceProp properties{};
  FLASHBENCH_CUDA(cudaGetDeviceProperties(&properties, index));
  DeviceInfo info;
  info.kind = DeviceKind::cuda;
  info.index = index;
  info.name = properties.name;
  info.compute_capability = 10 * properties.major + properties.minor;
  info.instructions = fmt::format("sm_{}", info.compute_capability);
  info.threads = properties.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.last_level_cache_bytes = properties.l2CacheSize;
  info.shared_memory_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  return info;
}

std::string gpu_bus_id(int index) {
  char text[32] = "";
  FLASHBENCH_CUDA(cudaDeviceGetPCIBusId(text, sizeof(text), index));
  return text;
}

void enable_peer_access(int gpu, int other) {
  int possible = 0;
  FLASHBENCH_CUDA(cudaDeviceCanAccessPeer(&possible, gpu, other));
  if (possible == 0) {
    throw NoDevice(
        fmt::format("cuda:{} cannot read the memory of cuda:{}, so that copies between them would "
                    "go through the host: nvidia-smi topo -p2p r shows which GPUs can",
                    gpu, other));
  }
  const WorkOnGpu here(gpu);
  const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // clears the error
    return;
  }
  check_cuda(status, "cudaDeviceEnablePeerAccess", __FILE__, __LINE__);
}

bool adds_to_peer(int gpu, int other) {
  int supported = 0;
  FLASHBENCH_CUDA(
      cudaDeviceGetP2PAttribute(&supported, cudaDevP2PAttrNativeAtomicSupported, gpu, other));
  return supported != 0;
}

WorkOnGpu::WorkOnGpu(int gpu) {
  FLASHBENCH_CUDA(cudaGetDevice(&before_));
  FLASHBENCH_CUDA(cudaSetDevice(gpu));
}

WorkOnGpu::~WorkOnGpu() {
  cudaSetDevice(before_);
}

}  // namespace flashbench
