// A case's inputs with other scores: about half of the rows of Q and K, drawn at random, have their
// signs flipped. Providers that kept something of Q or K, or return kept outputs where some
// elements of the inputs are as before, are wrong on them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "attention/host_memory.h"
#include "device/device.h"
#include "verify/oracle.h"

namespace flashbench {

// Of a forward problem.
class OtherScores {
 public:
  // `inputs` are the case's, on the host. They and the device must outlive this.
  OtherScores(const Problem&, const Inputs& inputs, uint64_t seed, const OracleBudget&, Device&);

  const Inputs& inputs() const { return inputs_; }
  Verdict judge(const Storage&, const Outputs&);

 private:
  const Problem& problem_;
  const OracleBudget budget_;
  Device& device_;
  HostVector<std::byte> q_, k_;
  Inputs inputs_;
  std::map<Storage, std::unique_ptr<Oracle>> oracles_;  // each made on first use
};

}  // namespace flashbench
