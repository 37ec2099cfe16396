#include <fmt/format.h>

#include <cstring>

#include "device/blas.h"
#include "inputs/random_value.h"
#include "measure/ceilings.h"
#include "measure/host_fma.h"
#include "measure/host_read.h"

namespace flashbench {

namespace {

constexpr int64_t kStreamBytes = int64_t{512} << 20;
constexpr int64_t kFmaSteps = int64_t{1} << 20;  // takes some milliseconds

// The half-open part of [0, total) that belongs to `item` of `items`.
struct Part {
  int64_t begin, end;
};
Part part(int64_t total, int64_t item, int64_t items) {
  return {total * item / items, total * (item + 1) / items};
}

std::string openblas_version() {
  const std::string config =
      blas::configuration();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  return config.substr(0, config.find(' ', config.find(' ') + 1));
}

// A GEMM with its own C for each thread. If the threads shared one C, each thread's share would
// shrink with their number, while each packs the whole right operand for itself.
class HostGemm final : public GemmCeiling {
 public:
  explicit HostGemm(Device& device)
      : device_(device), a_(room(device, 1)), b_(room(device, 1)), c_(room(device, threads())) {
    for (int64_t i = 0; i < kElements; ++i) {
      a_.as<float>()[i] = random_value(Distribution::normal, 1, 0, static_cast<uint64_t>(i));
      b_.as<float>()[i] = random_value(Distribution::normal, 1, 1, static_cast<uint64_t>(i));
    }
  }

  void run() override {
    device_.stream().threads->parallel_for(threads(), [&](int64_t item, int) {
      blas::gemm(blas::Transpose::no, blas::Transpose::yes, kHostGemmSize, kHostGemmSize,
                 kHostGemmSize, 1.0f, {a_.as<float>(), kHostGemmSize},
                 {b_.as<float>(), kHostGemmSize}, 0.0f,
                 {c_.as<float>() + item * kElements, kHostGemmSize});
    });
  }

  double flops() const override { return 2.0 * kElements * kHostGemmSize * threads(); }

  std::string description() const override {
    return fmt::format("sgemm {0}x{0}x{0} on each of {1} threads, {2}", kHostGemmSize, threads(),
                       openblas_version());
  }

 private:
  static constexpr int64_t kElements = kHostGemmSize * kHostGemmSize;

  int threads() const { return device_.stream().threads->threads(); }

  static Buffer room(Device& device, int64_t matrices) {
    return device.allocate(static_cast<size_t>(matrices * kElements) * sizeof(float),
                           MemoryUse::workspace);
  }

  Device& device_;
  Buffer a_, b_, c_;
};

}  // namespace

std::unique_ptr<GemmCeiling> make_host_gemm(Device& device) {
  return std::make_unique<HostGemm>(device);
}

std::vector<CeilingWork> host_ceilings(Device& device) {
  struct Streams {
    Buffer from, to;
    std::vector<uint64_t> sums;
  };
  ThreadPool& pool = *device.stream().threads;
  const auto streams = std::make_shared<Streams>(
      Streams{device.allocate(kStreamBytes, MemoryUse::workspace),
              device.allocate(kStreamBytes, MemoryUse::workspace),
              std::vector<uint64_t>(static_cast<size_t>(pool.threads()) * 8)});  // a line for each

  const auto copy = [streams, &pool] {
    pool.parallel_for(pool.threads(), [&](int64_t item, int) {
      const auto [begin, end] = part(kStreamBytes, item, pool.threads());
      std::memcpy(streams->to.as<std::byte>() + begin, streams->from.as<std::byte>() + begin,
                  static_cast<size_t>(end - begin));
    });
  };
  const auto read = [streams, &pool] {
    pool.parallel_for(pool.threads(), [&](int64_t item, int thread) {
      const auto [begin, end] = part(kStreamBytes / 8, item, pool.threads());
      HostReader reader;
      reader.add(streams->from.as<std::byte>() + begin * 8, (end - begin) * 8);
      streams->sums[static_cast<size_t>(thread) * 8] += reader.sum();
    });
  };

  const auto fma = [streams, &pool] {
    pool.parallel_for(pool.threads(), [&](int64_t item, int) {
      streams->sums[static_cast<size_t>(item) * 8] += host_fma::run(kFmaSteps) > 0 ? 1 : 0;
    });
  };

  const std::string threads = fmt::format("{} threads", device.info().threads);
  const std::string size = fmt::format("{} MiB", kStreamBytes >> 20);
  const std::shared_ptr<GemmCeiling> gemm = make_host_gemm(device);
  return {{"gemm_fp32", "FLOP/s", gemm->description(), gemm->flops(), [gemm] { gemm->run(); }},
          {"copy", "byte/s", "memcpy of " + size + " (read and written), " + threads,
           2.0 * kStreamBytes, copy},
          {"read", "byte/s", "sum over " + size + ", " + threads, 1.0 * kStreamBytes, read},
          {"ffma", "FLOP/s", "fp32 fused multiply-adds, two FLOPs each, " + threads,
           host_fma::flops(kFmaSteps) * pool.threads(), fma}};
}

}  // namespace flashbench
