// Prints how the oracle's criteria judge correct and broken simulated kernels: one line for each
// problem, simulation and tensor. docs/verifying.md has a table made from its output.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "attention_case.h"

namespace flashbench::verify {

namespace {

struct Setting {
  std::string label;
  Simulation simulation;
};

std::vector<Setting> correct_settings(Dtype dtype) {
  std::vector<Setting> settings;
  for (const int64_t tile : {32, 128}) {
    for (const bool p_in_dtype : {true, false}) {
      if (p_in_dtype && dtype == Dtype::fp32) continue;
      settings.push_back({fmt::format("correct tile={} p={}", tile, p_in_dtype ? "dtype" : "fp32"),
                          {tile, p_in_dtype, false, false, Defect::none}});
    }
  }
  if (dtype != Dtype::fp32) {
    settings.push_back({"correct ds_of_rounded_p", {64, true, true, false, Defect::none}});
    settings.push_back({"correct truncating", {64, true, false, true, Defect::none}});
    settings.push_back({"coarse rounded_scores", {64, true, true, false, Defect::none, true}});
  }
  return settings;
}

std::vector<Setting> broken_settings(const Problem& p) {
  constexpr int64_t kTile = 64;
  std::vector<Setting> settings;
  for (const Defect defect : kDefects) {
    if (!shows(defect, p, kTile)) continue;
    settings.push_back(
        {fmt::format("broken {}", name(defect)), {kTile, true, false, false, defect}});
  }
  return settings;
}

Problem shape(Pass pass, Dtype dtype, Mask mask, int64_t q_heads, int64_t kv_heads, int64_t q_len,
              int64_t kv_len, int64_t head_dim) {
  Problem p;
  p.pass = pass;
  p.dtype = dtype;
  p.mask = mask;
  p.q_heads = q_heads;
  p.kv_heads = kv_heads;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.head_dim = head_dim;
  return p;
}

std::vector<Problem> problems(Pass pass, Dtype dtype) {
  const auto none = Mask::none, top = Mask::causal_top_left, bottom = Mask::causal_bottom_right;
  return {
      shape(pass, dtype, none, 2, 2, 1, 1, 64),
      shape(pass, dtype, none, 2, 2, 65, 63, 8),
      shape(pass, dtype, bottom, 4, 2, 100, 300, 64),
      shape(pass, dtype, top, 4, 1, 300, 100, 32),
      shape(pass, dtype, bottom, 2, 2, 300, 100, 128),
      shape(pass, dtype, none, 4, 2, 1000, 1000, 64),
      shape(pass, dtype, bottom, 2, 2, 2040, 2040, 128),
      shape(pass, dtype, none, 2, 1, 500, 3000, 256),
      shape(pass, dtype, none, 1, 1, 500, 8160, 64),
      shape(pass, dtype, top, 1, 1, 4096, 4096, 64),
  };
}

void print_rows(AttentionCase& attention, Distribution distribution,
                const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    const Verdict verdict = attention.judge(setting.simulation);
    for (const TensorError& error : verdict.tensors) {
      fmt::print("{},{},{},{},{},{:.4g},{:.4g},{:.4g},{}\n", attention.problem.id(),
                 name(distribution), setting.label, error.tensor, error.nonfinite, error.lambda,
                 error.ratio, error.max_abs, error.passed ? "pass" : "fail");
    }
  }
  std::fflush(stdout);
}

void calibrate(const Problem& problem, Distribution distribution, Device& device) {
  AttentionCase attention(problem, {distribution, 7, {}, {}, {}, {}}, device);
  const auto start = std::chrono::steady_clock::now();
  attention.make_oracle({1e13, 1});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("# {} {} oracle {:.3f} s\n", problem.id(), name(distribution), seconds.count());
  std::vector<Setting> settings = correct_settings(problem.dtype);
  for (Setting& setting : broken_settings(problem)) settings.push_back(std::move(setting));
  print_rows(attention, distribution, settings);
  if (problem.dtype == Dtype::fp32) return;
  // The same with the bounds for providers that keep scores in the dtype.
  attention.make_oracle({1e13, 1}, problem.dtype);
  for (Setting& setting : settings) {
    setting.label = "stored scores; " + setting.label;
    setting.simulation.scores_in_dtype = true;
  }
  print_rows(attention, distribution, settings);
}

}  // namespace

}  // namespace flashbench::verify

// Arguments: the dtypes to run; default: all.
int main(int argc, char** argv) {
  using namespace flashbench;
  const std::unique_ptr<Device> device = make_host_device(2);
  std::vector<Dtype> dtypes(kUnscaledDtypes.begin(), kUnscaledDtypes.end());
  if (argc > 1) dtypes.clear();
  for (int i = 1; i < argc; ++i) dtypes.push_back(parse<Dtype>(argv[i]).value());
  for (const Dtype dtype : dtypes) {
    for (const Pass pass : kPasses) {
      for (const Problem& problem : verify::problems(pass, dtype)) {
        for (const Distribution distribution :
             {Distribution::normal, Distribution::uniform, Distribution::outliers}) {
          verify::calibrate(problem, distribution, *device);
        }
      }
    }
  }
}
