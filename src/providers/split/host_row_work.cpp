#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "attention/half.h"
#include "providers/split/row_work.h"

namespace flashbench {

namespace {

template <typename Data>
auto* row_of(const BasicTensorView<Data>& t, int64_t b, int64_t h, int64_t row) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  return static_cast<Byte*>(t.data) + t.offset(b, h, row) * element_size(t.dtype);
}
float* floats_of(const TensorView& t, int64_t b, int64_t h, int64_t row) {
  return reinterpret_cast<float*>(row_of(t, b, h, row));
}
const float* floats_of(const ConstTensorView& t, int64_t b, int64_t h, int64_t row) {
  return reinterpret_cast<const float*>(row_of(t, b, h, row));
}

// Calls work(batch, head, row) for each row of a tensor.
template <typename Work>
void for_each_row(const ConstTensorView& t, Stream stream, const Work& work) {
  constexpr int64_t kTogether = 64;
  const int64_t rows = t.batch * t.heads * t.length;
  stream.threads->parallel_for((rows + kTogether - 1) / kTogether, [&](int64_t item, int) {
    const int64_t end = std::min(rows, (item + 1) * kTogether);
    for (int64_t i = item * kTogether; i < end; ++i) {
      work(i / t.length / t.heads, i / t.length % t.heads, i % t.length);
    }
  });
}

void add_row(const TensorView& sum, const ConstTensorView& part, int64_t b, int64_t h,
             int64_t row) {
  float* to = floats_of(sum, b, h, row);
  const float* from = floats_of(part, b, h, row);
  for (int64_t i = 0; i < sum.head_dim; ++i) to[i] += from[i];
}

class HostRowWork final : public RowWork {
 public:
  explicit HostRowWork(Merge merge_rows_by) : merge_(merge_rows_by) {}

  void fill(const TensorView& t, float value, Stream stream) const override {
    for_each_row(t, stream, [&](int64_t b, int64_t h, int64_t row) {
      std::fill_n(floats_of(t, b, h, row), t.head_dim, value);
    });
  }

  void copy(const std::vector<RowCopy>& copies, Stream stream) const override {
    for (const RowCopy& copy : copies) {
      stream.threads->parallel_for(static_cast<int64_t>(copy.height), [&](int64_t row, int) {
        const auto i = static_cast<size_t>(row);
        std::memcpy(static_cast<std::byte*>(copy.to) + i * copy.to_pitch,
                    static_cast<const std::byte*>(copy.from) + i * copy.from_pitch, copy.width);
      });
    }
  }

  void add(const TensorView& sum, const ConstTensorView& part, Stream stream) const override {
    for_each_row(sum, stream,
                 [&](int64_t b, int64_t h, int64_t row) { add_row(sum, part, b, h, row); });
  }

  void store(const ConstTensorView& from, const TensorView& to, Stream stream) const override {
    for_each_row(to, stream, [&](int64_t b, int64_t h, int64_t row) {
      const float* values = floats_of(from, b, h, row);
      for (int64_t i = 0; i < to.head_dim; ++i) {
        store_element(row_of(to, b, h, row), to.dtype, i, values[i]);
      }
    });
  }

  void merge(const TensorView& sum_o, const TensorView& sum_lse, const TensorView& part_o,
             const TensorView& part_lse, Stream stream) const override {
    for_each_row(sum_o, stream, [&](int64_t b, int64_t h, int64_t row) {
      merge_({floats_of(sum_o, b, h, row), floats_of(sum_lse, b, h, row)},
             {floats_of(part_o, b, h, row), floats_of(part_lse, b, h, row)}, sum_o.head_dim);
    });
  }

  void merge_parts(const std::vector<PartialRows>& parts, const TensorView& o,
                   const TensorView& logsumexp, Stream stream) const override {
    for_each_row(o, stream, [&](int64_t b, int64_t h, int64_t row) {
      thread_local std::vector<float> sum;
      sum.assign(static_cast<size_t>(o.head_dim), 0);
      float* const sum_lse = floats_of(logsumexp, b, h, row);
      *sum_lse = -std::numeric_limits<float>::infinity();
      for (const PartialRows& part : parts) {
        merge_({sum.data(), sum_lse},
               {floats_of(part.o, b, h, row), floats_of(part.logsumexp, b, h, row)}, o.head_dim);
      }
      for (int64_t i = 0; i < o.head_dim; ++i) {
        store_element(row_of(o, b, h, row), o.dtype, i, sum[static_cast<size_t>(i)]);
      }
    });
  }

 private:
  Merge merge_;
};

}  // namespace

void add_rows(const TensorView& sum, const ConstTensorView& part) {
  for (int64_t b = 0; b < sum.batch; ++b) {
    for (int64_t h = 0; h < sum.heads; ++h) {
      for (int64_t row = 0; row < sum.length; ++row) add_row(sum, part, b, h, row);
    }
  }
}

std::unique_ptr<RowWork> make_host_row_work(Merge merge) {
  return std::make_unique<HostRowWork>(merge);
}

}  // namespace flashbench
