// Memory bounds all of this: a warp takes a row, its lanes the columns. Rows may begin at any
// element.
#include <algorithm>
#include <limits>

#include "device/cuda_call.h"
#include "kernels/common/convert.cuh"
#include "kernels/common/with_type.cuh"
#include "providers/split/row_work.h"

namespace flashbench {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <typename Element>
struct Rows {
  Element* data;
  int64_t batch_stride, head_stride, row_stride;

  __device__ Element* at(int64_t b, int64_t h, int64_t row) const {
    return data + b * batch_stride + h * head_stride + row * row_stride;
  }
};

template <typename Element, typename Data>
Rows<Element> rows_of_type(const BasicTensorView<Data>& t) {
  return {static_cast<Element*>(t.data), t.batch_stride, t.head_stride, t.row_stride};
}
Rows<float> floats(const TensorView& t) {
  return rows_of_type<float>(t);
}
Rows<const float> floats(const ConstTensorView& t) {
  return rows_of_type<const float>(t);
}

struct Shape {
  int64_t rows, heads, length;
  int columns;
};

template <typename Work>
__global__ void __launch_bounds__(kThreads) for_rows_kernel(Shape shape, Work work) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; i < shape.rows;
       i += warps) {
    work(i / shape.length / shape.heads, i / shape.length % shape.heads, i % shape.length, lane,
         shape.columns);
  }
}

template <typename Work>
void launch_for_rows(const ConstTensorView& t, const Work& work, Stream stream) {
  const Shape shape{t.batch * t.heads * t.length, t.heads, t.length, static_cast<int>(t.head_dim)};
  if (shape.rows == 0) return;
  constexpr int64_t kMostBlocks = 132 * 16;  // enough to fill any GPU; warps stride over the rest
  const int64_t blocks = std::min((shape.rows + kWarps - 1) / kWarps, kMostBlocks);
  for_rows_kernel<<<static_cast<unsigned>(blocks), kThreads, 0,
                    static_cast<cudaStream_t>(stream.cuda)>>>(shape, work);
  FLASHBENCH_CUDA(cudaGetLastError());
}

struct Fill {
  Rows<float> to;
  float value;
  __device__ void operator()(int64_t b, int64_t h, int64_t row, int lane, int columns) const {
    for (int i = lane; i < columns; i += 32) to.at(b, h, row)[i] = value;
  }
};

struct Add {
  Rows<float> sum;
  Rows<const float> part;
  __device__ void operator()(int64_t b, int64_t h, int64_t row, int lane, int columns) const {
    for (int i = lane; i < columns; i += 32) sum.at(b, h, row)[i] += part.at(b, h, row)[i];
  }
};

template <typename Element>
struct Store {
  Rows<const float> from;
  Rows<Element> to;
  __device__ void operator()(int64_t b, int64_t h, int64_t row, int lane, int columns) const {
    for (int i = lane; i < columns; i += 32) {
      to.at(b, h, row)[i] = kernels::from_float<Element>(from.at(b, h, row)[i]);
    }
  }
};

constexpr float kNoKey = -std::numeric_limits<float>::infinity();  // logsumexp of no key

// See merge_rows.
struct MergeRows {
  Rows<float> sum_o, sum_lse;
  Rows<float> part_o, part_lse;
  __device__ void operator()(int64_t b, int64_t h, int64_t row, int lane, int columns) const {
    float* const lse = sum_lse.at(b, h, row);
    const float first = *lse, second = *part_lse.at(b, h, row);
    const float highest = fmaxf(first, second);
    const float w1 = first == kNoKey ? 0 : expf(first - highest);
    const float w2 = second == kNoKey ? 0 : expf(second - highest);
    for (int i = lane; i < columns; i += 32) {
      float& sum = sum_o.at(b, h, row)[i];
      const float part = part_o.at(b, h, row)[i];
      if (second == kNoKey) {
        sum = first == kNoKey ? 0 : sum;
      } else {
        sum = first == kNoKey ? part : (w1 * sum + w2 * part) / (w1 + w2);
      }
    }
    __syncwarp();  // all lanes have read it
    if (lane != 0 || second == kNoKey) return;
    *lse = first == kNoKey ? second : highest + logf(w1 + w2);
  }
};

// Rows of one element that lie side by side, as rows of several where their number allows.
template <typename Data>
BasicTensorView<Data> with_wide_rows(BasicTensorView<Data> t) {
  if (t.head_dim != 1 || t.row_stride != 1) return t;
  while (t.head_dim < 256 && t.length % 2 == 0) {
    t.length /= 2;
    t.head_dim *= 2;
  }
  t.row_stride = t.head_dim;
  return t;
}

class CudaRowWork final : public RowWork {
 public:
  void fill(const TensorView& t, float value, Stream stream) const override {
    launch_for_rows(t, Fill{floats(t), value}, stream);
  }
  void add(const TensorView& sum, const ConstTensorView& part, Stream stream) const override {
    launch_for_rows(sum, Add{floats(sum), floats(part)}, stream);
  }
  void store(const ConstTensorView& given_from, const TensorView& given_to,
             Stream stream) const override {
    const bool dense = given_from.row_stride == given_to.row_stride;
    const ConstTensorView from = dense ? with_wide_rows(given_from) : given_from;
    const TensorView to = dense ? with_wide_rows(given_to) : given_to;
    kernels::with_type(to.dtype, [&]<typename Element>(Element) {
      launch_for_rows(to, Store<Element>{floats(from), rows_of_type<Element>(to)}, stream);
    });
  }
  void merge(const TensorView& sum_o, const TensorView& sum_lse, const TensorView& part_o,
             const TensorView& part_lse, Stream stream) const override {
    launch_for_rows(
        sum_o, MergeRows{floats(sum_o), floats(sum_lse), floats(part_o), floats(part_lse)}, stream);
  }
};

}  // namespace

std::unique_ptr<RowWork> make_cuda_row_work() {
  return std::make_unique<CudaRowWork>();
}

}  // namespace flashbench
