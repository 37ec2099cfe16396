#include "kernels/common/tensor_cores.h"

#include <algorithm>

#include "kernels/common/half_types.h"
#include "kernels/common/mask.h"

namespace flashbench::kernels {
namespace {

// The largest grid. Blocks of queries or keys have at least kSmallestBlock rows.
constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;
constexpr int64_t kSmallestBlock = 32;

}  // namespace

std::optional<std::string> why_no_tensor_cores(const Problem& p, const DeviceInfo& device) {
  if (auto why = why_not_half(p.dtype)) return why;
  if (device.compute_capability < 80) return "needs a GPU of compute capability 8.0 or higher";
  if (std::max(p.q_len, p.kv_len) >= kMaxLength) return "lengths must be below 2^30";
  if (p.batch * p.q_heads * (std::max(p.q_len, p.kv_len) / kSmallestBlock + 1) > kMaxGrid) {
    return "too many heads and rows for one grid";
  }
  return std::nullopt;
}

}  // namespace flashbench::kernels
