// racecheck_rings RING: one launch of a small ring of buffers, for compute-sanitizer's racecheck.
// Its verdicts on correct and incorrect rings show how reliable it is for kernels with such rings.
//   stores                 a warp writes and others read; every lane arrives when it has read
//   stores-first-lane      one lane arrives for its warp, after __syncwarp: as right
//   stores-unprotected     nobody waits for a buffer to be free: a race
//   copies                 the copy engine writes, by a tensor map; every lane arrives
//   copies-unprotected     nobody waits for a buffer to be free: a race
//   named-barriers         as stores, by named barriers: one side arrives, the other waits
#include <cstdio>
#include <string_view>

#include "kernels/ptx/barrier.h"
#include "kernels/ptx/cp_async_bulk_tensor.h"
#include "kernels/ptx/mbarrier.h"
#include "kernels/ptx/shared_address.h"
#include "kernels/sm90/roles.cuh"
#include "kernels/sm90/tensor_map.h"
#include "tests/kernels/on_gpu.h"

namespace flashbench::kernels {
namespace {

constexpr int kStages = 2, kSteps = 8, kFloats = 64, kReaders = 2;  // readers: warps

enum class Writer { stores, copies };
enum class Arrival { every_lane, first_lane, none };

template <Writer kWriter, Arrival kArrival>
__global__ void ring(const __grid_constant__ CUtensorMap tensor, const float* from, float* sums) {
  using Barriers = sm90::Barriers<sm90::NoDelay>;
  __shared__ alignas(128) float buffers[kStages][kFloats];
  __shared__ uint64_t full[kStages], empty[kStages];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&full[i]), kWriter == Writer::stores ? 32 : 1);
      ptx::mbarrier_init(ptx::shared_address(&empty[i]),
                         kArrival == Arrival::every_lane ? 32 * kReaders : kReaders);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const int stage = i % kStages, parity = i / kStages % 2;
    float* buffer = buffers[stage];
    const uint32_t is_full = ptx::shared_address(&full[stage]);
    const uint32_t is_empty = ptx::shared_address(&empty[stage]);
    if (warp == kReaders) {
      if (kArrival != Arrival::none) Barriers::wait(empty[stage], parity ^ 1);
      if (kWriter == Writer::stores) {
        for (int at = lane; at < kFloats; at += 32) buffer[at] = from[i * kFloats + at];
        ptx::mbarrier_arrive(is_full);
      } else if (lane == 0) {
        ptx::mbarrier_arrive_expect_tx(is_full, sizeof(buffers[0]));
        ptx::cp_async_bulk_tensor_2d(ptx::shared_address(buffer), tensor, 0, i, is_full);
      }
    } else {
      // Without arrivals the writer may be two phases ahead, and the phase to wait for is gone.
      if (kArrival != Arrival::none) Barriers::wait(full[stage], parity);
      for (int at = lane; at < kFloats; at += 32) sum += buffer[at];
      if (kArrival == Arrival::first_lane) __syncwarp();
      if (kArrival == Arrival::every_lane || (kArrival == Arrival::first_lane && lane == 0)) {
        ptx::mbarrier_arrive(is_empty);
      }
    }
  }
  sums[threadIdx.x] = sum;
}

__global__ void ring_of_named_barriers(const __grid_constant__ CUtensorMap, const float* from,
                                       float* sums) {
  constexpr int kFull = 1, kEmpty = kFull + kStages;  // one barrier for each stage
  constexpr int kThreads = 32 * (kReaders + 1);
  __shared__ float buffers[kStages][kFloats];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const int stage = i % kStages;
    if (warp == kReaders) {
      if (i >= kStages) ptx::barrier_sync(kEmpty + stage, kThreads);
      for (int at = lane; at < kFloats; at += 32) buffers[stage][at] = from[i * kFloats + at];
      ptx::barrier_arrive(kFull + stage, kThreads);
    } else {
      ptx::barrier_sync(kFull + stage, kThreads);
      for (int at = lane; at < kFloats; at += 32) sum += buffers[stage][at];
      if (i + kStages < kSteps) ptx::barrier_arrive(kEmpty + stage, kThreads);
    }
  }
  sums[threadIdx.x] = sum;
}

struct Ring {
  const char* name;
  void (*kernel)(CUtensorMap, const float*, float*);
};
constexpr Ring kRings[] = {
    {"stores", ring<Writer::stores, Arrival::every_lane>},
    {"stores-first-lane", ring<Writer::stores, Arrival::first_lane>},
    {"stores-unprotected", ring<Writer::stores, Arrival::none>},
    {"copies", ring<Writer::copies, Arrival::every_lane>},
    {"copies-unprotected", ring<Writer::copies, Arrival::none>},
    {"named-barriers", ring_of_named_barriers},
};

void run(const Ring& ring) {
  const OnGpu<float> from(kSteps * kFloats, 1), sums(32 * (kReaders + 1));
  ring.kernel<<<1, 32 * (kReaders + 1)>>>(
      sm90::float_rows_map(from.data(), kSteps, kFloats, kFloats), from.data(), sums.data());
  FLASHBENCH_CUDA(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace flashbench::kernels

int main(int argc, char** argv) {
  using namespace flashbench::kernels;
  for (const Ring& ring : kRings) {
    if (argc == 2 && std::string_view(argv[1]) == ring.name) {
      run(ring);
      return 0;
    }
  }
  std::fprintf(stderr, "racecheck_rings: name one of");
  for (const Ring& ring : kRings) std::fprintf(stderr, " %s", ring.name);
  std::fprintf(stderr, "\n");
  return 2;
}
