// The lengths of the requests of a batch, where they differ.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flashbench {

struct RequestLengths {
  int64_t q_len = 0, kv_len = 0;  // 0 or more

  bool operator==(const RequestLengths&) const = default;
};

// The rows of each request on one side: its queries, or its keys and values. Packed, request b has
// the rows from first(b) on, count(b) of them.
class RequestRows {
 public:
  explicit RequestRows(const std::vector<int64_t>& counts);

  int64_t requests() const { return static_cast<int64_t>(starts_.size()) - 1; }
  int64_t first(int64_t request) const { return starts_[static_cast<size_t>(request)]; }
  int64_t count(int64_t request) const { return first(request + 1) - first(request); }
  int64_t total() const { return starts_.back(); }
  int64_t longest() const { return longest_; }

  // The request that packed row `row` belongs to.
  int64_t request_of(int64_t row) const;

  // FlashAttention's cu_seqlens: the first row of each request, then the total.
  const std::vector<int64_t>& starts() const { return starts_; }

  bool operator==(const RequestRows&) const = default;

 private:
  std::vector<int64_t> starts_;
  int64_t longest_ = 0;
};

// Immutable, so that the copies of a problem and the views of its tensors share one.
class Lengths {
 public:
  explicit Lengths(const std::vector<RequestLengths>& requests);

  int64_t requests() const { return queries_.requests(); }
  RequestLengths operator[](int64_t request) const {
    return {queries_.count(request), keys_.count(request)};
  }
  const RequestRows& queries() const { return queries_; }
  const RequestRows& keys() const { return keys_; }

  // Short and different for different lengths: the totals and a hash of all lengths, e.g.
  // "4128q-36864kv-1f0a3b5c9d2e4f60".
  std::string id() const;

  bool operator==(const Lengths&) const = default;

 private:
  RequestRows queries_, keys_;
};

// Problems are equal if their lengths are, not only if they share them.
inline bool operator==(const std::shared_ptr<const Lengths>& a,
                       const std::shared_ptr<const Lengths>& b) {
  return a.get() == b.get() || (a && b && *a == *b);
}

}  // namespace flashbench
