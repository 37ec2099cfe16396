#include "measure/ceilings.h"

#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "measure/stats.h"

namespace flashbench {

namespace {

constexpr int64_t kGemmSize = 1536;  // large enough that packing is hidden: docs/measuring.md
constexpr int64_t kStreamBytes = int64_t{512} << 20;

// The half-open part of [0, total) that belongs to `item` of `items`.
struct Part {
  int64_t begin, end;
};
Part part(int64_t total, int64_t item, int64_t items) {
  return {total * item / items, total * (item + 1) / items};
}

std::string openblas_version() {
  std::string config = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  return config.substr(0, config.find(' ', config.find(' ') + 1));
}

Contender contender(std::function<void()> run) {
  return {.before = [] {}, .run = std::move(run), .after = [] {}};
}

}  // namespace

GemmCeiling::GemmCeiling(Device& device)
    : device_(device),
      a_(device.allocate(kGemmSize * kGemmSize * sizeof(float), MemoryUse::workspace)),
      b_(device.allocate(kGemmSize * kGemmSize * sizeof(float), MemoryUse::workspace)),
      c_(device.allocate(kGemmSize * kGemmSize * sizeof(float), MemoryUse::workspace)) {
  for (int64_t i = 0; i < kGemmSize * kGemmSize; ++i) {
    a_.as<float>()[i] = random_value(Distribution::normal, 1, 0, static_cast<uint64_t>(i));
    b_.as<float>()[i] = random_value(Distribution::normal, 1, 1, static_cast<uint64_t>(i));
  }
}

// Rows are split over our own threads, each calling a serial sgemm: OpenBLAS's threads would go on
// spinning for a while after the call and take time from whatever is measured next.
void GemmCeiling::run() {
  ThreadPool& pool = *device_.stream().threads;
  openblas_set_num_threads(1);
  pool.parallel_for(pool.threads(), [&](int64_t item, int) {
    const auto [begin, end] = part(kGemmSize, item, pool.threads());
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(end - begin), kGemmSize,
                kGemmSize, 1.0f, a_.as<float>() + begin * kGemmSize, kGemmSize, b_.as<float>(),
                kGemmSize, 0.0f, c_.as<float>() + begin * kGemmSize, kGemmSize);
  });
}

double GemmCeiling::flops() const {
  return 2.0 * kGemmSize * kGemmSize * kGemmSize;
}

std::string GemmCeiling::description() const {
  return fmt::format("sgemm {0}x{0}x{0}, {1}, {2} threads", kGemmSize, openblas_version(),
                     device_.info().threads);
}

double Ceiling::rate() const {
  return measurement.seconds.empty() ? 0 : work / median(measurement.seconds);
}

std::vector<Ceiling> measure_ceilings(Device& device, const MeasureOptions& options,
                                      const std::function<bool()>& interrupted) {
  GemmCeiling gemm(device);
  Buffer from = device.allocate(kStreamBytes, MemoryUse::workspace);
  Buffer to = device.allocate(kStreamBytes, MemoryUse::workspace);
  ThreadPool& pool = *device.stream().threads;
  std::vector<uint64_t> sums(static_cast<size_t>(pool.threads()) * 8);  // a cache line for each

  const auto copy = [&] {
    pool.parallel_for(pool.threads(), [&](int64_t item, int) {
      const auto [begin, end] = part(kStreamBytes, item, pool.threads());
      std::memcpy(to.as<std::byte>() + begin, from.as<std::byte>() + begin,
                  static_cast<size_t>(end - begin));
    });
  };
  const auto read = [&] {
    pool.parallel_for(pool.threads(), [&](int64_t item, int thread) {
      const auto [begin, end] = part(kStreamBytes / 8, item, pool.threads());
      uint64_t sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += from.as<uint64_t>()[i];
      sums[static_cast<size_t>(thread) * 8] += sum;
    });
  };

  const std::string threads = fmt::format("{} threads", device.info().threads);
  const std::string size = fmt::format("{} MiB", kStreamBytes >> 20);
  std::vector<Ceiling> ceilings{
      {"gemm_fp32", "FLOP/s", gemm.description(), gemm.flops(), {}},
      {"copy",
       "byte/s",
       "memcpy of " + size + " (read and written), " + threads,
       2.0 * kStreamBytes,
       {}},
      {"read", "byte/s", "sum over " + size + ", " + threads, 1.0 * kStreamBytes, {}}};
  const std::vector<Timing> timings = measure_interleaved(
      device, {contender([&] { gemm.run(); }), contender(copy), contender(read)}, options, 1,
      interrupted);
  for (size_t i = 0; i < ceilings.size(); ++i) {
    if (timings[i].error) std::rethrow_exception(timings[i].error);
    ceilings[i].measurement = timings[i].measurement;
  }
  return ceilings;
}

}  // namespace flashbench
