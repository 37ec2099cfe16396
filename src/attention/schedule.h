// How a kernel that splits the keys of a request shares out its work.
#pragma once

#include <cstdint>

namespace flashbench {

struct Schedule {
  int64_t splits = 1;         // parts of the keys of one head, the most of any request
  int64_t workers = 1;        // thread blocks, or threads, that the parts are shared out to
  int64_t partial_bytes = 0;  // of partial results that pass through memory, counted once
  double imbalance = 1;       // the keys of the worker that has the most, over their mean

  bool operator==(const Schedule&) const = default;
};

}  // namespace flashbench
