#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "device/cublas.h"
#include "measure/ceilings.h"
#include "measure/cuda_rates.h"
#include "measure/cuda_read.h"
#include "measure/stats.h"

namespace flashbench {

namespace {

constexpr int64_t kStreamBytes = int64_t{2} << 30;  // many times any L2
constexpr int kWarmUpRuns = 3, kRuns = 7;           // of a candidate for a ceiling

cudaStream_t stream_of(Device& device) {
  return static_cast<cudaStream_t>(device.stream().cuda);
}

void fill_normal(const Buffer& buffer, Dtype dtype, int64_t count, uint64_t seed,
                 cudaStream_t stream) {
  switch (dtype) {
    case Dtype::fp32:
      return cuda_rates::fill_normal_fp32(buffer.as<float>(), count, seed, stream);
    case Dtype::fp16:
      return cuda_rates::fill_normal_fp16(buffer.data(), count, seed, stream);
    case Dtype::bf16:
      return cuda_rates::fill_normal_bf16(buffer.data(), count, seed, stream);
    case Dtype::e4m3:
      break;
  }
}

// C = A B^T, cuBLAS's fastest form: both operands are contiguous along the summed dimension.
class CudaGemm final : public GemmCeiling {
 public:
  CudaGemm(Device& device, Dtype dtype, int64_t size)
      : dtype_(dtype),
        size_(size),
        a_(matrix(device)),
        b_(matrix(device)),
        c_(matrix(device)),
        workspace_(device.allocate(kCublasWorkspaceBytes, MemoryUse::workspace)),
        cublas_(device.stream().cuda, workspace_.data(), workspace_.bytes()) {
    fill_normal(a_, dtype, size * size, 1, stream_of(device));
    fill_normal(b_, dtype, size * size, 2, stream_of(device));
  }

  void run() override {
    const Gemm gemm{.transpose_b = true,
                    .rows = size_,
                    .columns = size_,
                    .depth = size_,
                    .a = {a_.data(), dtype_, size_},
                    .b = {b_.data(), dtype_, size_},
                    .c = {c_.data(), dtype_, size_}};
    cublas_.multiply_strided(gemm, 1, 0, 0, 0);
  }

  double flops() const override {
    const auto size = static_cast<double>(size_);
    return 2 * size * size * size;
  }

  std::string description() const override {
    int version = 0;
    FLASHBENCH_CUBLAS(cublas_library().get_version(cublas_.handle(), &version));
    return fmt::format("{0} {1}x{1}x{1} (A B^T), the fastest of {2}, cuBLAS {3}",
                       flashbench::name(dtype_), size_, fmt::join(kCudaGemmSizes, ", "), version);
  }

 private:
  Buffer matrix(Device& device) const {
    return device.allocate(static_cast<size_t>(size_ * size_ * element_size(dtype_)),
                           MemoryUse::workspace);
  }

  Dtype dtype_;
  int64_t size_;
  Buffer a_, b_, c_, workspace_;
  Cublas cublas_;
};

// The median of a few runs. The warm-up loads the kernel, which a timed run would wait for.
double seconds_of(Device& device, const std::function<void()>& run) {
  std::vector<double> seconds;
  run();
  for (int i = -kWarmUpRuns; i < kRuns; ++i) {
    const double taken = device.time(run);
    if (i >= 0) seconds.push_back(taken);
  }
  return median(seconds);
}

// The fastest way to read, over the largest of these sizes that fits memory: the launch takes a
// smaller share of it.
CeilingWork fastest_read(Device& device) {
  constexpr int64_t kSizes[] = {int64_t{8} << 30, int64_t{2} << 30};
  std::shared_ptr<Buffer> from;
  for (const int64_t bytes : kSizes) {
    try {
      from = std::make_shared<Buffer>(
          device.allocate(static_cast<size_t>(bytes), MemoryUse::workspace));
      break;
    } catch (const OutOfMemory&) {
      if (bytes == kSizes[std::size(kSizes) - 1]) throw;
    }
  }
  cuda_rates::fill_normal_fp32(
      from->as<float>(), static_cast<int64_t>(from->bytes() / sizeof(float)), 1, stream_of(device));
  const auto out =
      std::make_shared<Buffer>(device.allocate(sizeof(unsigned), MemoryUse::workspace));
  const auto reading = [&](const cuda_read::Way& way) {
    return [from, out, launch = way.launch, multiprocessors = device.info().threads,
            stream = stream_of(device)] {
      launch(from->data(), from->bytes(), out->as<unsigned>(), multiprocessors, stream);
    };
  };
  const auto ways = cuda_read::ways();
  std::vector<double> seconds;
  for (const cuda_read::Way& way : ways) seconds.push_back(seconds_of(device, reading(way)));
  const cuda_read::Way& best =
      ways[static_cast<size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin())];
  return {"read", "byte/s",
          fmt::format("{} MiB by {}, the fastest of {} ways", from->bytes() >> 20, best.description,
                      ways.size()),
          static_cast<double>(from->bytes()), reading(best)};
}

}  // namespace

// The fastest of the sizes that fit memory.
std::unique_ptr<GemmCeiling> make_cuda_gemm(Device& device, Dtype dtype) {
  std::unique_ptr<CudaGemm> best;
  double best_rate = 0;
  for (const int64_t size : kCudaGemmSizes) {
    try {
      auto gemm = std::make_unique<CudaGemm>(device, dtype, size);
      const double rate = gemm->flops() / seconds_of(device, [&] { gemm->run(); });
      if (rate <= best_rate) continue;
      best_rate = rate;
      best = std::move(gemm);
    } catch (const OutOfMemory&) {
      if (best == nullptr) throw;
      break;
    }
  }
  return best;
}

std::vector<CeilingWork> cuda_ceilings(Device& device) {
  std::vector<CeilingWork> works;
  for (const Dtype dtype : kUnscaledDtypes) {
    const std::shared_ptr<GemmCeiling> gemm = make_cuda_gemm(device, dtype);
    works.push_back({fmt::format("gemm_{}", name(dtype)), "FLOP/s", gemm->description(),
                     gemm->flops(), [gemm] { gemm->run(); }});
  }

  struct Streams {
    Buffer from, to, out;
  };
  const auto streams =
      std::make_shared<Streams>(Streams{device.allocate(kStreamBytes, MemoryUse::workspace),
                                        device.allocate(kStreamBytes, MemoryUse::workspace),
                                        device.allocate(sizeof(uint64_t), MemoryUse::workspace)});
  cudaStream_t const stream = stream_of(device);
  const std::string size = fmt::format("{} MiB", kStreamBytes >> 20);
  works.push_back({"copy", "byte/s", "16-byte accesses over " + size + " (read and written)",
                   2.0 * kStreamBytes, [streams, stream] {
                     cuda_rates::copy(streams->to.data(), streams->from.data(), kStreamBytes,
                                      stream);
                   }});
  works.push_back(fastest_read(device));
  const int multiprocessors = device.info().threads;
  works.push_back({"ffma", "FLOP/s", "fp32 fused multiply-adds, two FLOPs each",
                   cuda_rates::ffma_flops(multiprocessors), [streams, stream, multiprocessors] {
                     cuda_rates::ffma(multiprocessors, streams->out.as<float>(), stream);
                   }});
  works.push_back({"exp2", "exp2/s", "ex2.approx.ftz.f32", cuda_rates::exp2_values(multiprocessors),
                   [streams, stream, multiprocessors] {
                     cuda_rates::exp2(multiprocessors, streams->out.as<float>(), stream);
                   }});
  if (device.info().compute_capability >= cuda_rates::kLeastForE4m3) {
    works.push_back({"cvt_e4m3", "value/s", "cvt.rn.satfinite.e4m3x2.f32, two values each",
                     cuda_rates::cvt_e4m3_values(multiprocessors),
                     [streams, stream, multiprocessors] {
                       cuda_rates::cvt_e4m3(multiprocessors, streams->out.as<float>(), stream);
                     }});
  }
  return works;
}

}  // namespace flashbench
