// Results with known times, for the tests of comparisons.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "report/record.h"

namespace flashbench {

// How the samples of a side are generated: seconds * (1 + noise), with noise >= 0 as under load;
// each process has its own additional factor.
struct Times {
  double seconds = 0.01;
  std::vector<int> processes{40};  // samples per process
  double noise = 0.01, process_noise = 0.002;
  double machine = 1;  // slows the anchor too
};

inline Measurement sample_measurement(const Times& times, std::mt19937& random) {
  std::normal_distribution<double> normal(0, 1);
  Measurement measurement{{}, 3, CacheState::warm, "max_samples"};
  for (int count : times.processes) {
    const double process = 1 + times.process_noise * normal(random);
    for (int i = 0; i < count; ++i) {
      const double noise = 1 + times.noise * std::abs(normal(random));
      measurement.seconds.push_back(times.seconds * times.machine * process * noise);
    }
  }
  if (times.processes.size() > 1) measurement.samples_per_process = times.processes;
  return measurement;
}

inline Record timed_record(const std::string& provider, int q_len, const Times& times,
                           std::mt19937& random) {
  Record record;
  record.item.problem = {.q_heads = 4, .kv_heads = 4, .q_len = q_len, .kv_len = 512};
  record.provider = provider;
  record.kernel = provider + "_kernel";
  record.status = Status::ok;
  record.verdict = {Verdict::Status::passed, false, 1, {{.tensor = "o", .passed = true}}, ""};
  record.measurement = sample_measurement(times, random);
  Times gemm = times;
  gemm.seconds = 0.02;
  record.gemm = sample_measurement(gemm, random);
  record.gemm_flops = 7e9;
  return record;
}

inline SweepResult sweep_of(std::vector<Record> records) {
  SweepResult result;
  result.meta = {{"version", "1.2.3"},       {"git_commit", "abc"},
                 {"compiler", "GNU 12.2.0"}, {"build_type", "Release"},
                 {"sanitizers", ""},         {"flop_rule", "exact pairs"},
                 {"byte_rule", "loops"},     {"started", "2026-01-02T03:04:05Z"}};
  result.devices = nlohmann::ordered_json::array(
      {{{"kind", "cpu"},
        {"name", "Some CPU"},
        {"instructions", "AVX3"},
        {"threads", 2},
        {"libraries", {{"openblas", "OpenBLAS 0.3.21"}, {"openblas_core", "SkylakeX"}}}}});
  result.config = {{"name", "sample"}};
  result.records = std::move(records);
  return result;
}

// How a neighbour disturbs samples: the share of the samples that had to wait, the length of the
// wait relative to the sample, and the number of threads of the work. Threads that spin use
// processor time while they wait.
struct Neighbour {
  double share = 0.5, wait = 2;
  int threads = 1;
  bool spins = false;
};

inline void disturb(Measurement& measurement, const Neighbour& neighbour, std::mt19937& random) {
  std::uniform_real_distribution<double> chance(0, 1);
  measurement.load = Load{.seconds = 1, .cores = 2, .others = 1.5};
  measurement.core_times.clear();
  for (double& seconds : measurement.seconds) {
    CoreTime time{seconds * neighbour.threads, 0};
    if (chance(random) < neighbour.share) {
      time.waited = seconds * neighbour.wait * (0.9 + 0.2 * chance(random));
      if (neighbour.spins) time.ran += time.waited * (neighbour.threads - 1);
      seconds += time.waited;
    }
    measurement.core_times.push_back(time);
  }
}

// The same sweep on a quiet machine that reports processor time.
inline SweepResult alone(int threads, SweepResult result) {
  std::mt19937 random;
  for (Record& record : result.records) {
    disturb(*record.measurement, {.share = 0, .threads = threads}, random);
    disturb(*record.gemm, {.share = 0, .threads = 2}, random);
    record.measurement->load->others = record.gemm->load->others = 0.02;
  }
  return result;
}

// The same sweep beside a neighbour, which disturbs the GEMM in every sample.
inline SweepResult beside(const Neighbour& neighbour, SweepResult result, unsigned seed = 7) {
  std::mt19937 random(seed);
  for (Record& record : result.records) {
    disturb(*record.measurement, neighbour, random);
    disturb(*record.gemm, {.share = 1, .wait = 1, .threads = 2}, random);
  }
  return result;
}

// Nine rows, all with the same times.
inline SweepResult nine_rows(const Times& times, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Record> records;
  for (int i = 1; i <= 9; ++i) {
    records.push_back(timed_record("tiled", 64 * i, times, random));
  }
  return sweep_of(std::move(records));
}

}  // namespace flashbench
