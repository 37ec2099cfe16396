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

}  // namespace flashbench
