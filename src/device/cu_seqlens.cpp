#include "device/cu_seqlens.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace flashbench {

namespace {

Buffer starts_on(Device& device, const RequestRows& rows) {
  const std::vector<int32_t> starts(rows.starts().begin(), rows.starts().end());
  Buffer buffer = device.allocate(starts.size() * sizeof(int32_t), MemoryUse::input);
  device.copy_to_device(buffer.data(), starts.data(), buffer.bytes());
  return buffer;
}

}  // namespace

CuSeqlens::CuSeqlens(Device& device, const Problem& p) {
  if (!p.lengths) return;
  queries_ = starts_on(device, p.lengths->queries());
  keys_ = starts_on(device, p.lengths->keys());
}

std::optional<std::string> CuSeqlens::why_none(const Problem& p) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (!p.lengths || std::max(p.q_tokens(), p.kv_tokens()) <= kMost) return std::nullopt;
  return "cu_seqlens has 32 bits, and cannot count this many tokens";
}

}  // namespace flashbench
