#include "inputs/padding.h"

#include <cstddef>
#include <cstring>

namespace flashbench {

namespace {

void fill_padding(const TensorView& t, const RequestRows& rows, int byte) {
  const int64_t element = element_size(t.dtype);
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t row = rows.count(b); row < t.length; ++row) {
        std::memset(static_cast<std::byte*>(t.data) + t.offset(b, h, row) * element, byte,
                    static_cast<size_t>(t.head_dim * element));
      }
    }
  }
}

}  // namespace

void poison_padding(const TensorView& tensor, const RequestRows& rows) {
  fill_padding(tensor, rows, kPoisonByte);
}

void clear_padding(const TensorView& tensor, const RequestRows& rows) {
  fill_padding(tensor, rows, 0);
}

}  // namespace flashbench
