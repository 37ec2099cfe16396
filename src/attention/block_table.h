// Which pages of a pool hold the keys and values of each request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flashbench {

class BlockTable {
 public:
  // The entries behind a request's last page. No pool is as large, and a few more pages overflow 32
  // bits.
  static constexpr int32_t kNoPage = 2'147'480'000;

  // [requests, width] entries kNoPage, for a pool of `pages`.
  BlockTable(int64_t requests, int64_t width, int64_t pages);

  int64_t requests() const { return requests_; }
  int64_t width() const { return width_; }
  int64_t pages() const { return pages_; }

  // The same for a pool of another size.
  BlockTable in_pool_of(int64_t pages) const;

  // The page that holds page number `number` of the request's rows.
  int32_t& at(int64_t request, int64_t number) { return entries_[index(request, number)]; }
  int32_t at(int64_t request, int64_t number) const { return entries_[index(request, number)]; }
  const int32_t* data() const { return entries_.data(); }

  // Short and different for different tables, e.g. "40pages-3x5-1f0a3b5c9d2e4f60".
  std::string id() const;

  bool operator==(const BlockTable&) const = default;

 private:
  size_t index(int64_t request, int64_t number) const {
    return static_cast<size_t>(request * width_ + number);
  }

  int64_t requests_, width_, pages_;
  std::vector<int32_t> entries_;
};

// Problems are equal if their tables are, not only if they share them.
inline bool operator==(const std::shared_ptr<const BlockTable>& a,
                       const std::shared_ptr<const BlockTable>& b) {
  return a.get() == b.get() || (a && b && *a == *b);
}

}  // namespace flashbench
