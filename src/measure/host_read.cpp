// Compiled once for each SIMD target of Highway; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/host_read.cpp"
#include <hwy/foreach_target.h>  // comes before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "measure/host_read.h"

HWY_BEFORE_NAMESPACE();
namespace flashbench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

uint64_t SumPieces(const HostReader::Piece* pieces, size_t count) {
  const hn::ScalableTag<uint64_t> d;
  constexpr auto kVectorBytes = static_cast<int64_t>(hn::MaxLanes(d) * sizeof(uint64_t));
  const auto load = [&](const std::byte* from)
                        HWY_ATTR { return hn::LoadU(d, reinterpret_cast<const uint64_t*>(from)); };
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  uint64_t rest = 0;
  for (const HostReader::Piece* piece = pieces; piece < pieces + count; ++piece) {
    const std::byte* from = piece->from;
    const std::byte* const end = from + piece->bytes;
    for (; end - from >= 2 * kVectorBytes; from += 2 * kVectorBytes) {
      sum0 = hn::Add(sum0, load(from));
      sum1 = hn::Add(sum1, load(from + kVectorBytes));
    }
    for (; from < end; from += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, from, sizeof(word));
      rest += word;
    }
  }
  return rest + hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

}  // namespace HWY_NAMESPACE
}  // namespace flashbench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flashbench {

HWY_EXPORT(SumPieces);

void HostReader::add(const std::byte* row, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (const std::byte* const end = row + bytes; row < end; row += kPieceBytes) {
    if (count_ == pieces_.size()) {
      sum_ += HWY_DYNAMIC_DISPATCH(SumPieces)(pieces_.data(), kAhead);
      std::copy(pieces_.begin() + kAhead, pieces_.end(), pieces_.begin());
      count_ -= kAhead;
    }
    const Piece piece{row, std::min<int64_t>(kPieceBytes, end - row)};
    for (int64_t byte = 0; byte < piece.bytes; byte += kLine) __builtin_prefetch(row + byte);
    pieces_[count_++] = piece;
  }
}

uint64_t HostReader::sum() {
  sum_ += HWY_DYNAMIC_DISPATCH(SumPieces)(pieces_.data(), count_);
  count_ = 0;
  return sum_;
}

}  // namespace flashbench
#endif
