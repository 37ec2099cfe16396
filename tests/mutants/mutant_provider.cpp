#include "mutants/mutant_provider.h"

#include <cstring>
#include <utility>
#include <vector>

namespace flashbench {

namespace {

using verify::Defect;

class MutantSession : public Session {
 public:
  MutantSession(const Problem& problem, ThreadPool& pool, const verify::Simulation& simulation)
      : problem_(problem), pool_(pool), simulation_(simulation) {}

  void run(const Inputs& inputs, const Outputs& outputs) override {
    if (!first_.empty()) return write_first(outputs);
    verify::simulate(problem_, inputs, outputs, simulation_, pool_);
    if (simulation_.defect == Defect::stale_output) keep_first(outputs);
  }
  std::string kernel() const override { return std::string(flashbench::name(simulation_.defect)); }
  std::optional<int64_t> requested_bytes() const override { return problem_.compulsory_bytes(); }

 private:
  using Memory = std::pair<std::byte*, size_t>;

  void keep_first(const Outputs& outputs) {
    for (const auto& [data, bytes] : memory(outputs)) first_.emplace_back(data, data + bytes);
  }
  void write_first(const Outputs& outputs) const {
    auto from = first_.begin();
    for (const auto& [data, bytes] : memory(outputs)) std::memcpy(data, (from++)->data(), bytes);
  }

  // The memory of the pass's outputs, each dense.
  std::vector<Memory> memory(const Outputs& outputs) const {
    const auto of = [](const TensorView& tensor) {
      return Memory{static_cast<std::byte*>(tensor.data),
                    static_cast<size_t>(tensor.elements() * element_size(tensor.dtype))};
    };
    if (problem_.pass == Pass::backward) return {of(outputs.dq), of(outputs.dk), of(outputs.dv)};
    return {of(outputs.o),
            {reinterpret_cast<std::byte*>(outputs.logsumexp),
             static_cast<size_t>(problem_.query_rows()) * sizeof(float)}};
  }

  Problem problem_;
  ThreadPool& pool_;
  verify::Simulation simulation_;
  std::vector<std::vector<std::byte>> first_;  // the first run's outputs, for stale ones later
};

}  // namespace

std::unique_ptr<Session> MutantProvider::prepare(const Problem& problem, Device& device) const {
  return std::make_unique<MutantSession>(problem, *device.stream().threads, simulation_);
}

}  // namespace flashbench
