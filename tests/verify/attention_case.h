// A problem with its inputs and memory for outputs, for the tests of the oracle.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/device.h"
#include "host/thread_pool.h"
#include "inputs/inputs.h"
#include "mutants/simulated_kernel.h"
#include "verify/oracle.h"

namespace flashbench::verify {

class AttentionCase {
 public:
  AttentionCase(const Problem& asked, const InputSpec& spec, Device& on)
      : problem(asked), pool(*on.stream().threads), device_(on), tensors_(asked, spec, pool) {
    const auto element = static_cast<size_t>(element_size(problem.dtype));
    o_.resize(static_cast<size_t>(problem.output_elements()) * element);
    dq_.resize(static_cast<size_t>(problem.query_elements()) * element);
    dk_.resize(static_cast<size_t>(problem.key_elements()) * element);
    dv_.resize(static_cast<size_t>(problem.value_elements()) * element);
    logsumexp_.resize(static_cast<size_t>(problem.query_rows()));
  }

  // Makes the oracle; for the backward pass it also fills in the O and logsumexp that providers
  // read.
  Oracle& make_oracle(const OracleBudget& budget = {}, const Storage& storage = {}) {
    oracle_ = std::make_unique<Oracle>(problem, inputs(), storage, budget, device_);
    if (problem.pass == Pass::backward) {
      oracle_->exact_forward(tensors_.mutable_o(), tensors_.mutable_logsumexp());
    }
    return *oracle_;
  }

  Inputs inputs() const { return tensors_.inputs(); }
  Outputs outputs() {
    return {output_view<void>(o_.data(), problem), logsumexp_.data(),
            query_view<void>(dq_.data(), problem), key_view<void>(dk_.data(), problem),
            value_view<void>(dv_.data(), problem)};
  }

  // Poisons the outputs, then runs the simulated kernel.
  void run(const Simulation& simulation) {
    for (std::vector<std::byte>* tensor : {&o_, &dq_, &dk_, &dv_}) {
      std::memset(tensor->data(), 0xff, tensor->size());
    }
    std::memset(logsumexp_.data(), 0xff, logsumexp_.size() * sizeof(float));
    simulate(problem, inputs(), outputs(), simulation, pool);
  }
  Verdict judge(const Simulation& simulation) {
    run(simulation);
    return oracle_->judge(outputs());
  }

  const Problem problem;
  ThreadPool& pool;

 private:
  Device& device_;
  HostTensors tensors_;
  std::unique_ptr<Oracle> oracle_;
  std::vector<std::byte> o_, dq_, dk_, dv_;
  std::vector<float> logsumexp_;
};

}  // namespace flashbench::verify
