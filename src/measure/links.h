// How fast the devices that share problems copy from each other.
#pragma once

#include <cstddef>
#include <vector>

#include "device/device_group.h"

namespace flashbench {

// Bytes a second. Medians of a few copies, each of a whole buffer, by the copy engine of the device
// that receives.
struct Links {
  int ranks = 0;
  size_t bytes = 0;  // of a copy

  // Of device `to` alone from `from`, at [to * ranks + from]; 0 from itself.
  std::vector<double> one_way;
  // The same while `from` copies from `to`, too.
  std::vector<double> both_ways;
  // Of each device on average, while every one copies from every other, one after another.
  double all_at_once = 0;
};

// The device has these ranks; `bytes` of each are allocated twice. Throws OutOfMemory.
Links measure_links(Device&, int ranks, size_t bytes);

// Bytes a second by NCCL, as nccl-tests counts them: busbw, which is what a GPU sends to others
// in a second. Medians of a few runs.
struct NcclRates {
  size_t bytes = 0;         // of the whole buffer: what a rank sends, or has at last, or at first
  double send_receive = 0;  // to the next rank, while as much arrives from the one before
  double all_gather = 0;
  double all_to_all = 0;      // by sends and receives
  double reduce_scatter = 0;  // sums of fp32
};

// why_no_nccl() has no reason. Allocates as measure_links(), a few bytes less where the ranks do
// not divide them. Throws OutOfMemory, or std::runtime_error if NCCL reports an error.
NcclRates measure_nccl(Device&, int ranks, size_t bytes);

}  // namespace flashbench
