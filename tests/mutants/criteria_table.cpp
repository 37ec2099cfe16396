// Prints as CSV how each criterion judges a correct kernel and each planted defect: one line for
// each mutant, pass, dtype and number of keys. scripts/criteria.py makes the table in
// docs/verifying.md from it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "attention/half.h"
#include "mutants/criteria.h"
#include "mutants/eager.h"
#include "mutants/simulated_kernel.h"
#include "verify/attention_case.h"
#include "verify/textbook.h"

namespace flashbench::verify {

namespace {

constexpr int64_t kTile = 64;

struct Mutant {
  std::string label;
  Simulation simulation;
};

std::vector<Mutant> mutants(const Problem& p) {
  std::vector<Mutant> list{{"correct", {kTile, true}},
                           {"correct", {128, true}},
                           {"correct", {kTile, false}},
                           {"correct", {kTile, true, true}}};
  for (const Defect defect : kDefects) {
    // The other projects' rules cover only O and gradients.
    if (defect == Defect::wrong_logsumexp || !shows(defect, p, kTile)) continue;
    list.push_back({std::string(name(defect)), {kTile, true, false, false, defect}});
  }
  return list;
}

template <typename T, typename View>
std::vector<T> elements(const View& tensor) {
  std::vector<T> values;
  for (int64_t b = 0; b < tensor.batch; ++b) {
    for (int64_t h = 0; h < tensor.heads; ++h) {
      for (int64_t i = 0; i < tensor.length * tensor.head_dim; ++i) {
        const int64_t row = i / tensor.head_dim, column = i % tensor.head_dim;
        values.push_back(
            load_element(tensor.data, tensor.dtype, tensor.offset(b, h, row) + column));
      }
    }
  }
  return values;
}

// Every output of a problem with the values to compare it with; `found` is set later.
std::vector<ComparedTensor> comparisons(AttentionCase& attention) {
  const Problem& p = attention.problem;
  Textbook exact = textbook_attention(p, attention.inputs());
  Eager eager = eager_attention(p, attention.inputs(), attention.pool);
  std::vector<ComparedTensor> tensors;
  const auto add = [&](const char* tensor, const Array& values, std::vector<float>& computed) {
    tensors.push_back(
        {tensor, p.dtype, {}, {values.values.begin(), values.values.end()}, std::move(computed)});
  };
  if (p.pass == Pass::forward) {
    add("o", exact.o, eager.o);
  } else {
    add("dq", exact.dq, eager.dq);
    add("dk", exact.dk, eager.dk);
    add("dv", exact.dv, eager.dv);
  }
  return tensors;
}

void set_found(std::vector<ComparedTensor>& tensors, const Outputs& outputs) {
  for (ComparedTensor& compared : tensors) {
    const TensorView& tensor = compared.tensor == "o"    ? outputs.o
                               : compared.tensor == "dq" ? outputs.dq
                               : compared.tensor == "dk" ? outputs.dk
                                                         : outputs.dv;
    compared.found = elements<float>(tensor);
  }
}

// "caught", "missed", or nothing if the criterion has no rule.
std::string_view outcome(Criterion criterion, const std::vector<ComparedTensor>& tensors) {
  bool caught = false;
  for (const ComparedTensor& compared : tensors) {
    const std::optional<bool> accepted = accepts(criterion, compared);
    if (!accepted) return "";
    caught = caught || !*accepted;
  }
  return caught ? "caught" : "missed";
}

void print_header() {
  fmt::print("mutant,pass,dtype,kv_len");
  for (const Criterion criterion : kCriteria) fmt::print(",{}", name(criterion));
  fmt::print(",flashbench,nonfinite,lambda\n");
}

void print_rows(const Problem& problem, Device& device) {
  AttentionCase attention(problem, {}, device);
  attention.make_oracle({.fp64_flops = 1e13});
  std::vector<ComparedTensor> tensors = comparisons(attention);
  for (const Mutant& mutant : mutants(problem)) {
    const Verdict verdict = attention.judge(mutant.simulation);
    set_found(tensors, attention.outputs());
    fmt::print("{},{},{},{}", mutant.label, name(problem.pass), name(problem.dtype),
               problem.kv_len);
    for (const Criterion criterion : kCriteria) fmt::print(",{}", outcome(criterion, tensors));
    double lambda = 0;
    int64_t nonfinite = 0;
    for (const TensorError& error : verdict.tensors) {
      lambda = std::max(lambda, error.lambda);
      nonfinite += error.nonfinite;
    }
    fmt::print(",{},{},{:.4g}\n", verdict.passed() ? "missed" : "caught", nonfinite, lambda);
  }
  std::fflush(stdout);
}

}  // namespace

}  // namespace flashbench::verify

int main() {
  using namespace flashbench;
  const std::unique_ptr<Device> device = make_host_device(2);
  verify::print_header();
  for (const Pass pass : kPasses) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      // Half a tile more than a multiple of the tile, so that there is padding.
      for (const int64_t kv_len : {1056, 8160, 32736}) {
        verify::print_rows({.pass = pass,
                            .dtype = dtype,
                            .mask = Mask::causal_bottom_right,
                            .q_heads = 4,
                            .kv_heads = 2,
                            .q_len = 32,
                            .kv_len = kv_len,
                            .head_dim = 64},
                           *device);
      }
    }
  }
}
