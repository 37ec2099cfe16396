// The GPUs that --device names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashbench {

// The numbers in "cuda" (0), "cuda:N" or "cuda:N,N,...", in their order: rank r of a problem that
// several devices share is on the GPU at r. A GPU that is named twice has two ranks. Throws
// BadInput for anything else.
std::vector<int> gpu_list(std::string_view selector);

// Each GPU once, in the order in which it is first named.
std::vector<int> different(const std::vector<int>& gpus);

// "4 on 4 GPUs", or of ranks that share some "4 on 2 GPUs".
std::string ranks_text(const std::vector<int>& gpus);

}  // namespace flashbench
