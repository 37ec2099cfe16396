#include "mutants/mutant_provider.h"

namespace flashbench {

namespace {

class MutantSession : public Session {
 public:
  MutantSession(const Problem& problem, ThreadPool& pool, const verify::Simulation& simulation)
      : problem_(problem), pool_(pool), simulation_(simulation) {}

  // A kernel that stops writing is right the first time.
  void run(const Inputs& inputs, const Outputs& outputs) override {
    verify::Simulation simulation = simulation_;
    if (simulation.defect == verify::Defect::stale_output && runs_ == 0) {
      simulation.defect = verify::Defect::none;
    }
    ++runs_;
    verify::simulate(problem_, inputs, outputs, simulation, pool_);
  }
  std::string kernel() const override { return std::string(verify::name(simulation_.defect)); }
  int64_t requested_bytes() const override { return problem_.compulsory_bytes(); }

 private:
  Problem problem_;
  ThreadPool& pool_;
  verify::Simulation simulation_;
  int runs_ = 0;
};

}  // namespace

std::unique_ptr<Session> MutantProvider::prepare(const Problem& problem, Device& device) const {
  return std::make_unique<MutantSession>(problem, *device.stream().threads, simulation_);
}

}  // namespace flashbench
