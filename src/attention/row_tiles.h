// The rows of every head of a batch, divided into tiles: the work items of a parallel loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/lengths.h"
#include "attention/problem.h"

namespace flashbench {

// Rows [first, first + rows) of a head.
struct RowTile {
  int64_t batch, head, first, rows;
};

class RowTiles {
 public:
  // `batch` times `heads` heads of `length` rows each.
  RowTiles(int64_t batch, int64_t heads, int64_t length, int64_t tile_rows)
      : batch_(batch), heads_(heads), length_(length), tile_rows_(tile_rows) {}

  // `heads` heads of each request's own number of rows, in tiles of its own: tile_rows(number).
  // `rows` must outlive this.
  template <typename TileRows>
  RowTiles(const RequestRows& rows, int64_t heads, const TileRows& tile_rows)
      : RowTiles(rows.requests(), heads, 0, 1) {
    std::vector<int64_t> items;
    for (int64_t b = 0; b < batch_; ++b) {
      own_tile_rows_.push_back(tile_rows(rows.count(b)));
      items.push_back(heads * tiles_in(rows.count(b), own_tile_rows_.back()));
    }
    items_ = RequestRows(items);
    rows_ = &rows;
  }

  // The queries of a problem, which must outlive this, in tiles of one size.
  static RowTiles of_queries(const Problem& p, int64_t tile_rows) {
    if (!p.lengths) return RowTiles(p.batch, p.q_heads, p.q_len, tile_rows);
    return RowTiles(p.lengths->queries(), p.q_heads, [=](int64_t) { return tile_rows; });
  }

  int64_t size() const {
    return rows_ == nullptr ? batch_ * heads_ * tiles_in(length_, tile_rows_) : items_.total();
  }

  // The tiles of a head follow each other, the heads of a request, and the requests.
  RowTile operator[](int64_t item) const {
    const Place place = place_of(item);
    return tile(place, place.number);
  }

  // The number of the first tile of a head, and how many tiles it has.
  int64_t first_tile(int64_t batch, int64_t head) const {
    if (rows_ == nullptr) return (batch * heads_ + head) * tiles_in(length_, tile_rows_);
    return items_.first(batch) + head * tiles_of(batch);
  }
  int64_t tiles_of(int64_t batch) const {
    if (rows_ == nullptr) return tiles_in(length_, tile_rows_);
    return tiles_in(rows_->count(batch), own_tile_rows_[static_cast<size_t>(batch)]);
  }

  // The same as operator[], but the tiles of each head from the last to the first.
  RowTile last_first(int64_t item) const {
    const Place place = place_of(item);
    return tile(place, tiles_in(place.length, place.tile_rows) - 1 - place.number);
  }

 private:
  struct Place {
    int64_t batch, head, number, length, tile_rows;
  };

  static int64_t tiles_in(int64_t rows, int64_t tile_rows) {
    return (rows + tile_rows - 1) / tile_rows;
  }

  Place place_of(int64_t item) const {
    if (rows_ == nullptr) {
      const int64_t tiles = tiles_in(length_, tile_rows_), head = item / tiles;
      return {head / heads_, head % heads_, item % tiles, length_, tile_rows_};
    }
    const int64_t batch = items_.request_of(item), own = item - items_.first(batch);
    const int64_t length = rows_->count(batch);
    const int64_t tile_rows = own_tile_rows_[static_cast<size_t>(batch)];
    const int64_t tiles = tiles_in(length, tile_rows);
    return {batch, own / tiles, own % tiles, length, tile_rows};
  }

  static RowTile tile(const Place& place, int64_t number) {
    const int64_t first = number * place.tile_rows;
    return {place.batch, place.head, first, std::min(place.tile_rows, place.length - first)};
  }

  int64_t batch_, heads_, length_, tile_rows_;
  const RequestRows* rows_ = nullptr;   // null: all have `length_`, in tiles of `tile_rows_`
  std::vector<int64_t> own_tile_rows_;  // of each request
  RequestRows items_{{}};               // of each request
};

}  // namespace flashbench
