#include "attention/lengths.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/hash.h"

namespace flashbench {

namespace {

template <typename Count>
std::vector<int64_t> counts_of(const std::vector<RequestLengths>& requests, Count count) {
  std::vector<int64_t> counts;
  counts.reserve(requests.size());
  for (const RequestLengths& request : requests) counts.push_back(request.*count);
  return counts;
}

}  // namespace

RequestRows::RequestRows(const std::vector<int64_t>& counts) {
  starts_.reserve(counts.size() + 1);
  starts_.push_back(0);
  for (const int64_t count : counts) {
    starts_.push_back(starts_.back() + count);
    longest_ = std::max(longest_, count);
  }
}

int64_t RequestRows::request_of(int64_t row) const {
  return std::upper_bound(starts_.begin(), starts_.end(), row) - starts_.begin() - 1;
}

Lengths::Lengths(const std::vector<RequestLengths>& requests)
    : queries_(counts_of(requests, &RequestLengths::q_len)),
      keys_(counts_of(requests, &RequestLengths::kv_len)) {}

std::string Lengths::id() const {
  Hash hash;
  for (const RequestRows* rows : {&queries_, &keys_}) {
    for (const int64_t start : rows->starts()) hash.add(start);
  }
  return fmt::format("{}q-{}kv-{:016x}", queries_.total(), keys_.total(), hash.value());
}

}  // namespace flashbench
