#include "kernels/common/fused_forward.h"

#include <algorithm>
#include <cmath>

namespace flashbench::kernels {

// Q is read once; O and L are written once. Every block of queries reads the keys and values that
// it sees.
int64_t fused_forward_requested_bytes(const Launch& at,
                                      const std::function<int64_t(int64_t)>& missing_rows) {
  const Problem& p = at.problem;
  const int64_t keys = p.sum_of_requests([&](const Problem& request) {
    int64_t sum = 0;
    for (int64_t first = -missing_rows(request.q_len); first < request.q_len;
         first += at.blocks.q) {
      const int64_t last = std::min(request.q_len, first + at.blocks.q) - 1;
      const int64_t top = std::max<int64_t>(0, first);
      sum += request.visible_keys(last).end - request.visible_keys(top).first;
    }
    return sum;
  });
  const int64_t queries = p.q_heads * p.q_tokens();
  return element_size(p.dtype) * (queries + 2 * p.q_heads * keys) * p.head_dim +
         element_size(p.output_dtype()) * queries * p.head_dim +
         static_cast<int64_t>(sizeof(float)) * queries;
}

int64_t fused_forward_requested_bytes(const Launch& at) {
  return fused_forward_requested_bytes(at, [](int64_t) { return 0; });
}

int64_t section_heads(const Problem& p, const BlockSizes& blocks, const DeviceInfo& device) {
  const int64_t heads = p.batch * p.kv_heads;
  const double bytes_per_head =
      2.0 * static_cast<double>(p.kv_len * p.head_dim * element_size(p.dtype));
  const double blocks_per_head =
      static_cast<double>((p.q_len + blocks.q - 1) / blocks.q * p.heads_per_kv_head());
  const auto l2_bytes = static_cast<double>(device.last_level_cache_bytes);
  const bool causal = p.mask != Mask::none;
  const double two_blocks_each = 2 * device.threads / blocks_per_head;  // in heads
  const double best = causal ? std::max(two_blocks_each, std::min(1.25 * two_blocks_each,
                                                                  l2_bytes / 2 / bytes_per_head))
                             : l2_bytes / 16 / bytes_per_head;
  const auto rounded = [](double x) { return std::max<int64_t>(1, std::llround(x)); };
  const int64_t sections = rounded(static_cast<double>(heads) / static_cast<double>(rounded(best)));
  return heads_of_section(heads, sections, causal ? rounded(two_blocks_each) : 1) *
         p.heads_per_kv_head();
}

// The numbers, for each thread block, are those that simulated launches have chosen: 11 to 60
// lengths of tiles, times that vary by 3%.
ItemOrder tile_order(const Problem& p, int64_t tiles, int64_t section_heads, int64_t at_once) {
  const auto blocks = static_cast<double>(at_once);
  const double tiles_each = static_cast<double>(tiles) / blocks;
  const bool from_long_to_short =
      p.mask != Mask::none && !p.has_window() &&
      4 * p.visible_keys(0).size() <= p.visible_keys(p.q_len - 1).size();
  if (!from_long_to_short || section_heads < p.batch * p.q_heads || !has_own_order(tiles_each)) {
    return {};
  }
  const double first = std::clamp(1.06 - 0.62 * (tiles_each - 2), 0.0, 1.0);
  const double ahead = 0.85 * (tiles_each - 2);
  return {static_cast<int>(first * blocks), static_cast<int>(at_once),
          static_cast<int>(ahead * blocks)};
}

}  // namespace flashbench::kernels
