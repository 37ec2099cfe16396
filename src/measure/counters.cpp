#include "measure/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace flashbench {

namespace {

constexpr std::string_view kSum = ".sum";

// The names of the counted metrics on different chips, without ".sum". If a chip lists several for
// a quantity, the first is taken; for tensor operations they differ by the type of the operands.
struct Metric {
  Counted counted;
  std::string_view name;
  std::optional<Dtype> dtype = std::nullopt;  // of the problems it is read for; empty: all
};
constexpr std::array kMetrics{
    Metric{Counted::dram_read, "dram__bytes_read"},
    Metric{Counted::dram_read, "dram__bytes_op_read"},
    Metric{Counted::dram_write, "dram__bytes_write"},
    Metric{Counted::dram_write, "dram__bytes_op_write"},
    Metric{Counted::l2, "lts__t_bytes"},
    Metric{Counted::tensor, "sm__ops_path_tensor_src_bf16_dst_fp32", Dtype::bf16},
    Metric{Counted::tensor, "sm__ops_path_tensor_src_fp16_dst_fp32", Dtype::fp16},
    Metric{Counted::tensor, "sm__ops_path_tensor_src_fp16", Dtype::fp16},
    Metric{Counted::tensor, "sm__ops_path_tensor_src_tf32_dst_fp32", Dtype::fp32},
};

class NoCounterReader final : public CounterReader {
 public:
  explicit NoCounterReader(CounterState state) : state_(std::move(state)) {}

  const CounterState& state() const override { return state_; }
  CounterValues count(Dtype, const Launch&, const Launch&) override { fail(); }
  std::vector<CounterValues> count_launches(Dtype, const Launch&, const Launch&) override {
    fail();
  }
  int passes(Dtype) override { fail(); }

 private:
  [[noreturn]] void fail() const { throw CounterError(state_.status, state_.code, state_.reason); }

  CounterState state_;
};

}  // namespace

std::string why_none(const CounterState& state) {
  return fmt::format("hardware counters cannot be read ({}): {}", name(state.status), state.reason);
}

std::vector<std::string> wanted_metrics(const std::vector<std::string>& listed, Dtype dtype) {
  std::vector<std::string> wanted;
  std::vector<Counted> found;
  for (const Metric& metric : kMetrics) {
    const bool ours = !metric.dtype || metric.dtype == dtype;
    const bool there = std::find(listed.begin(), listed.end(), metric.name) != listed.end();
    const bool again = std::find(found.begin(), found.end(), metric.counted) != found.end();
    if (!ours || !there || again) continue;
    found.push_back(metric.counted);
    wanted.push_back(std::string(metric.name).append(kSum));
  }
  return wanted;
}

std::optional<double> total(const CounterValues& values, Counted counted) {
  std::optional<double> sum;
  for (const auto& [name, value] : values) {
    const auto metric = std::find_if(
        kMetrics.begin(), kMetrics.end(),
        [&name = name](const Metric& m) { return std::string(m.name).append(kSum) == name; });
    if (metric != kMetrics.end() && metric->counted == counted) sum = sum.value_or(0) + value;
  }
  return sum;
}

std::optional<int64_t> measured_bytes(const CounterReport& report) {
  const bool cold = report.cache == CacheState::cold;
  const auto read = total(report.run, Counted::dram_read);
  const auto written = total(cold ? report.run_and_eviction : report.run, Counted::dram_write);
  if (!read || !written) return std::nullopt;
  return std::llround(*read + *written);
}

std::unique_ptr<CounterReader> make_no_counter_reader(CounterState state) {
  return std::make_unique<NoCounterReader>(std::move(state));
}

std::unique_ptr<CounterReader> make_counter_reader(Device& device) {
  if (device.info().kind == DeviceKind::cuda) return make_cuda_counter_reader(device);
  return make_no_counter_reader(
      {.status = CounterStatus::off, .reason = "hardware counters are read on NVIDIA GPUs only"});
}

CounterReport count_run(Device& device, CounterReader& reader, Dtype dtype, CacheState cache,
                        CounterDetail detail, const CounterReader::Launch& run) {
  CounterReport report;
  report.state = reader.state();
  report.cache = cache;
  if (report.state.status != CounterStatus::ok) return report;

  const auto before = [&] {
    if (cache == CacheState::cold) {
      device.evict_caches();
    } else {
      run();
    }
  };
  const auto run_and_evict = [&] {
    run();
    device.evict_caches();
  };
  device.evict_caches();  // the first call fills its buffer
  try {
    report.passes = reader.passes(dtype);
    report.run = reader.count(dtype, before, run);
    if (detail == CounterDetail::everything || cache == CacheState::cold) {
      report.run_and_eviction = reader.count(dtype, before, run_and_evict);
      report.eviction_bytes = device.eviction_bytes();
    }
    if (detail == CounterDetail::everything) {
      report.launches = reader.count_launches(dtype, before, run);
      if (report.launches.size() == 1) report.launches.clear();
    }
  } catch (const CounterError& error) {
    report = CounterReport{.state = report.state, .cache = cache};
    report.state.status = error.status;
    report.state.code = error.code;
    report.state.reason = error.what();
  }
  return report;
}

}  // namespace flashbench
