// What GPUs that share a problem do by NCCL: one rank on each, all in this process.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/nccl_library.h"

namespace flashbench {

struct NcclSend {
  int to = 0;
  const void* data = nullptr;
  size_t bytes = 0;
};
struct NcclReceive {
  int from = 0;
  void* data = nullptr;
  size_t bytes = 0;
};

// Every member throws std::runtime_error, which names the rank and the call, if NCCL reports an
// error. What takes a rank is queued on a stream of that rank's GPU, by the rank's thread; every
// rank does the same, in the same order.
class NcclRanks {
 public:
  // The GPUs are different. NCCL takes memory of its own on each.
  NcclRanks(const NcclLibrary&, const std::vector<int>& gpus);
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  // All messages are under way at once, so that no rank waits for one while another rank waits for
  // a second. Those from one rank to another arrive in their order.
  void exchange(int rank, const std::vector<NcclSend>&, const std::vector<NcclReceive>&,
                Stream) const;

  // The rank gives `bytes` and gets those of all, in the order of the ranks.
  void all_gather(int rank, const void* from, void* to, size_t bytes, Stream) const;

  // The rank gives `count` values for each rank, in their order, and gets the sum of those for it.
  void reduce_scatter(int rank, const float* from, float* to, size_t count, Stream) const;

  // Ends what waits for a rank that has failed. Afterwards every call is an error.
  void abort();

 private:
  NcclLibrary::Communicator communicator(int rank) const;
  void check(int result, int rank, const char* call) const;

  const NcclLibrary& library_;
  std::vector<NcclLibrary::Communicator> communicators_;  // empty once aborted
};

// A sentence that says why the ranks of this device cannot use the library; empty if they can.
std::optional<std::string> why_no_nccl(const DeviceInfo&, const NcclLibrary&);

}  // namespace flashbench
