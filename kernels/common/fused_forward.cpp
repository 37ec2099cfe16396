#include "kernels/common/fused_forward.h"

#include <algorithm>

namespace flashbench::kernels {

// Q read and O and L written once; K and V read once for every block of queries, as far as it sees
// them.
int64_t fused_forward_requested_bytes(const Launch& at) {
  const Problem& p = at.problem;
  int64_t keys = 0;
  for (int64_t first = 0; first < p.q_len; first += at.blocks.q) {
    keys += p.visible_keys(std::min(p.q_len, first + at.blocks.q) - 1);
  }
  return element_size(p.dtype) * 2 *
             (p.query_elements() + p.batch * p.q_heads * keys * p.head_dim) +
         static_cast<int64_t>(sizeof(float)) * p.query_rows();
}

int64_t section_heads(const Problem& p, const DeviceInfo& device) {
  const int64_t bytes_per_kv_head = 2 * p.kv_len * p.head_dim * element_size(p.dtype);
  const int64_t kv_heads = device.last_level_cache_bytes * 2 / 3 / bytes_per_kv_head;
  return std::clamp<int64_t>(kv_heads, 1, p.batch * p.kv_heads) * p.heads_per_kv_head();
}

}  // namespace flashbench::kernels
