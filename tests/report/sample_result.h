// A result with a row of every kind, for tests of its presentations.
#pragma once

#include "report/record.h"

namespace flashbench {

inline Measurement samples_of(double seconds) {
  return {{seconds, seconds, seconds}, 1, CacheState::cold, "interval"};
}

inline Record sample_record(const std::string& provider, double seconds) {
  Record record;
  record.item.problem = {.batch = 2, .q_heads = 4, .kv_heads = 4, .q_len = 128, .kv_len = 128};
  record.provider = provider;
  record.kernel = provider + "_kernel 64x64";
  record.status = Status::ok;
  record.verdict = {Verdict::Status::passed,
                    false,
                    1.0,
                    {{"o", 65536, 0, 1.5e-7, 2e-8, 0.9, 0.4, {1, 2, 3, 4}, true},
                     {"logsumexp", 1024, 0, 3e-7, 4e-8, 1.1, 0.2, {0, 1, 2, 0}, true}},
                    ""};
  record.measurement =
      Measurement{{seconds * 1.1, seconds, seconds, seconds * 0.9, seconds, seconds},
                  3,
                  CacheState::warm,
                  "interval",
                  {4, 2}};
  record.gemm = Measurement{{0.1, 0.1, 0.1}, 1, CacheState::warm, "time_cap"};
  record.gemm_flops = 2e10;
  record.requested_bytes = 1 << 20;
  record.memory = MemoryReport{{.input = 3 << 20, .output = 1 << 20, .workspace = 1 << 19}, 12345};
  return record;
}

inline SweepResult sample_result() {
  SweepResult result;
  result.meta = {{"tool", "flashbench"},
                 {"version", "1.2.3"},
                 {"git_commit", "abc"},
                 {"started", "2026-01-02T03:04:05Z"}};
  result.devices = nlohmann::ordered_json::array(
      {{{"name", "Some CPU, 3 GHz"}, {"threads", 2}, {"instructions", "AVX3"}}});
  result.config = {{"name", "sample"}};
  result.ceilings = {
      {"copy", "byte/s", "memcpy", 1e9, {{0.1, 0.2, 0.1}, 1, CacheState::warm, "x"}}};
  result.records = {sample_record("naive", 0.004), sample_record("tiled", 0.001)};

  Record sampled = sample_record("tiled", 0.01);
  sampled.item.problem = {.pass = Pass::backward,
                          .dtype = Dtype::bf16,
                          .mask = Mask::causal_bottom_right,
                          .batch = 1,
                          .q_heads = 32,
                          .kv_heads = 8,
                          .q_len = 1000,
                          .kv_len = 16384,
                          .head_dim = 128,
                          .scale = 0.25};
  sampled.gemm_flops = 2e13;
  sampled.verdict.tensors = {{"dq", 65536, 0, 1.5e-7, 2e-8, 0.9, 0.4, {1, 2, 3, 4}, true},
                             {"dk", 65536, 0, 3e-7, 4e-8, 1.1, 0.2, {0, 1, 2, 0}, true},
                             {"dv", 65536, 0, 3e-7, 4e-8, 1.1, 0.2, {0, 1, 2, 0}, true}};
  sampled.verdict.sampled = true;
  sampled.verdict.checked_fraction = 0.125;
  result.records.push_back(sampled);

  Record failed = sample_record("tiled", 0.01);
  failed.item.inputs.distribution = Distribution::files;
  failed.item.inputs.q = "=q,\"x\".npy";
  failed.status = Status::failed;
  failed.reason = "o is off by 3, \"far\" | wrong";
  failed.verdict.status = Verdict::Status::failed;
  failed.measurement.reset();
  failed.gemm.reset();
  result.records.push_back(failed);

  Record unsupported;
  unsupported.provider = "other";
  unsupported.status = Status::unsupported;
  unsupported.reason = "it has no head_dim 64";
  result.records.push_back(unsupported);
  return result;
}

}  // namespace flashbench
