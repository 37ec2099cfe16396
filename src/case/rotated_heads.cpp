#include "case/rotated_heads.h"

#include <cstring>

namespace flashbench {

namespace {

// Of a tensor of this shape at `memory`: head h takes the place of head h + by. `by` is negative to
// turn back.
void rotate_heads(const ConstTensorView& t, void* memory, int64_t by) {
  const auto element = static_cast<size_t>(element_size(t.dtype));
  const size_t row_bytes = static_cast<size_t>(t.head_dim) * element;
  auto* const data = static_cast<std::byte*>(memory);
  HostVector<std::byte> rows(static_cast<size_t>(t.heads) * row_bytes);
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t row = 0; row < t.rows(b); ++row) {
      const auto of_head = [&](int64_t h) {
        return data + static_cast<size_t>(t.offset(b, h, row)) * element;
      };
      for (int64_t h = 0; h < t.heads; ++h) {
        std::memcpy(rows.data() + static_cast<size_t>(h) * row_bytes, of_head(h), row_bytes);
      }
      for (int64_t h = 0; h < t.heads; ++h) {
        const int64_t to = (h + by + t.heads) % t.heads;
        std::memcpy(of_head(to), rows.data() + static_cast<size_t>(h) * row_bytes, row_bytes);
      }
    }
  }
}

}  // namespace

RotatedHeads::RotatedHeads(const Problem& p, const Inputs& inputs)
    : query_heads_(p.kv_heads > 1 ? p.heads_per_kv_head() : 1),
      kv_heads_(p.kv_heads > 1 ? 1 : 0),
      inputs_(inputs) {
  // The host's tensors are dense. Returns the copy.
  const auto rotated = [&](const ConstTensorView& t, int64_t by) {
    const size_t bytes = static_cast<size_t>(t.elements() * element_size(t.dtype));
    HostVector<std::byte>& copy = copies_.emplace_back(bytes);
    std::memcpy(copy.data(), t.data, bytes);
    rotate_heads(t, copy.data(), by);
    return copy.data();
  };
  inputs_.q.data = rotated(inputs.q, query_heads_);
  inputs_.k.data = rotated(inputs.k, kv_heads_);
  inputs_.v.data = rotated(inputs.v, kv_heads_);
  inputs_.o.data = rotated(inputs.o, query_heads_);
  inputs_.d_o.data = rotated(inputs.d_o, query_heads_);
  inputs_.logsumexp = reinterpret_cast<const float*>(
      rotated(logsumexp_view<const void>(inputs.logsumexp, p), query_heads_));
}

void RotatedHeads::turn_back(const Outputs& outputs) const {
  rotate_heads(outputs.dq, outputs.dq.data, -query_heads_);
  rotate_heads(outputs.dk, outputs.dk.data, -kv_heads_);
  rotate_heads(outputs.dv, outputs.dv.data, -kv_heads_);
}

bool has_heads_to_rotate(const Problem& p) {
  return p.q_heads > 1;
}

}  // namespace flashbench
