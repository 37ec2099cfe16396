#include "device/page_owners.h"

#include <algorithm>

namespace flashbench {

std::vector<OwnedRows> owned_rows(const TokenSplit& tokens) {
  std::vector<OwnedRows> owned;
  for (int chunk = 0; chunk < tokens.chunks(); ++chunk) {
    owned.push_back({tokens.chunk(chunk), tokens.owner(chunk)});
  }
  return owned;
}

std::vector<OwnedRows> owned_rows(const KeySplit& split) {
  std::vector<OwnedRows> owned;
  for (int rank = 0; rank < split.ranks; ++rank) owned.push_back({split.keys(rank), rank});
  return owned;
}

std::vector<OwnedBytes> owned_bytes(const ConstTensorView& t, size_t begin,
                                    const std::vector<OwnedRows>& all_rows) {
  // Where the heads of a row lie beside each other, a run is that of all heads.
  const bool heads_inside = t.head_stride < t.row_stride;
  const int64_t runs = heads_inside ? 1 : t.heads;
  const int64_t width = heads_inside ? (t.heads - 1) * t.head_stride + t.head_dim : t.head_dim;
  const auto byte_of = [&](int64_t element) {
    return begin + static_cast<size_t>(element * element_size(t.dtype));
  };
  std::vector<OwnedBytes> owned;
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < runs; ++h) {
      for (const auto& [rows, rank] : all_rows) {
        if (rows.empty()) continue;
        owned.push_back({byte_of(t.offset(b, h, rows.first)),
                         byte_of(t.offset(b, h, rows.end - 1) + width), rank});
      }
    }
  }
  std::ranges::sort(owned, {}, &OwnedBytes::first);
  return owned;
}

std::vector<OwnedPages> pages_by_owner(size_t bytes, size_t page_bytes,
                                       const std::vector<OwnedBytes>& owned) {
  const size_t pages = (bytes + page_bytes - 1) / page_bytes;
  int ranks = 1;
  for (const OwnedBytes& part : owned) ranks = std::max(ranks, part.rank + 1);
  std::vector<std::vector<size_t>> bytes_of(pages, std::vector<size_t>(static_cast<size_t>(ranks)));
  for (const OwnedBytes& part : owned) {
    for (size_t at = part.first; at < part.end;) {
      const size_t page = at / page_bytes, end = std::min(part.end, (page + 1) * page_bytes);
      bytes_of[page][static_cast<size_t>(part.rank)] += end - at;
      at = end;
    }
  }
  std::vector<OwnedPages> runs;
  for (size_t page = 0; page < pages; ++page) {
    const auto most = std::ranges::max_element(bytes_of[page]);
    const bool nobodys = *most == 0;
    const int rank = nobodys ? (runs.empty() ? 0 : runs.back().rank)
                             : static_cast<int>(most - bytes_of[page].begin());
    if (runs.empty() || runs.back().rank != rank) runs.push_back({page, 0, rank});
    ++runs.back().count;
  }
  return runs;
}

}  // namespace flashbench
