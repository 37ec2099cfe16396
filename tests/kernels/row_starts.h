// Where the rows of requests begin, as cu_seqlens says it.
#pragma once

#include <vector>

namespace flashbench::kernels {

inline std::vector<int> starts(const std::vector<int>& rows) {
  std::vector<int> cu{0};
  for (const int count : rows) cu.push_back(cu.back() + count);
  return cu;
}

}  // namespace flashbench::kernels
