#include "measure/round_ceilings.h"

#include <algorithm>

namespace flashbench {

namespace {

// Bytes of a row of all heads.
int64_t row_bytes(const Problem& p, StreamPart::Tensor tensor) {
  const bool of_queries = tensor == StreamPart::q || tensor == StreamPart::o;
  const bool as_wide_as_q = tensor == StreamPart::q || tensor == StreamPart::k;
  return (of_queries ? p.q_heads : p.kv_heads) * (as_wide_as_q ? p.head_dim : p.value_dim()) *
         element_size(of_queries ? p.dtype : p.key_dtype());
}

}  // namespace

bool is_streamed(const Problem& p) {
  return p.pass == Pass::forward &&
         p.flops() < kMostStreamedIntensity * static_cast<double>(p.compulsory_bytes());
}

std::vector<StreamPart> stream_parts(const Problem& p, int64_t part_bytes, int32_t most_rows) {
  std::vector<StreamPart> parts;
  const auto add = [&](StreamPart::Tensor tensor, int64_t request, RowRange range) {
    const int64_t rows = std::clamp<int64_t>(part_bytes / row_bytes(p, tensor), 1, most_rows);
    for (int64_t first = range.first; first < range.end; first += rows) {
      parts.push_back({tensor, static_cast<int32_t>(request), first,
                       static_cast<int32_t>(std::min(rows, range.end - first))});
    }
  };
  for (int64_t b = 0; b < p.batch; ++b) {
    const RowRange queries{0, p.q_len_of(b)}, keys = p.request(b).seen_keys();
    add(StreamPart::q, b, queries);
    add(StreamPart::k, b, keys);
    add(StreamPart::v, b, keys);
    add(StreamPart::o, b, queries);
  }
  return parts;
}

int64_t stream_bytes(const Problem& p, const std::vector<StreamPart>& parts) {
  int64_t bytes = 0;
  for (const StreamPart& part : parts) bytes += part.rows * row_bytes(p, part.tensor);
  return bytes;
}

std::vector<CeilingWork> round_ceilings(Device& device, const Problem& p, const Inputs& in,
                                        const Outputs& out) {
  if (!is_streamed(p) || !device.takes_launches()) return {};
  return device.info().kind == DeviceKind::cpu ? host_round_ceilings(device, p, in, out)
                                               : cuda_round_ceilings(device, p, in, out);
}

}  // namespace flashbench
