// Memory, or links, bound all of this: a warp takes a row, its lanes the columns. Rows may begin at
// any element, those of parts to be merged at multiples of 16 bytes.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "attention/problem.h"
#include "device/cuda_call.h"
#include "kernels/common/convert.cuh"
#include "kernels/common/divisor.cuh"
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

  __device__ int64_t offset(int64_t b, int64_t h, int64_t row) const {
    return b * batch_stride + h * head_stride + row * row_stride;
  }
  __device__ Element* at(int64_t b, int64_t h, int64_t row) const {
    return data + offset(b, h, row);
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

// The same of any number of parts, which may be in the memory of other GPUs: a lane has four
// columns, and reads what several parts have of them at once.
template <typename Element>
struct MergeParts {
  static constexpr int kTogether = 4;

  const float *part_o[kMaxGpus], *part_lse[kMaxGpus];
  int parts;
  Rows<const float> first_o, first_lse;  // the strides of all
  Rows<Element> to;
  Rows<float> to_lse;

  __device__ void operator()(int64_t b, int64_t h, int64_t row, int lane, int columns) const {
    for (int column = 4 * lane; column < columns; column += 4 * 32) {
      const int64_t o_at = first_o.offset(b, h, row) + column;
      const int64_t lse_at = first_lse.offset(b, h, row);
      float highest = kNoKey, weights = 0;
      float4 sum{0, 0, 0, 0};
      for (int first = 0; first < parts; first += kTogether) {
        float lse[kTogether];
        float4 o[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int part = min(first + i, parts - 1);
          lse[i] = part_lse[part][lse_at];
          o[i] = *reinterpret_cast<const float4*>(part_o[part] + o_at);
        }
        const float before = highest;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          if (first + i >= parts) lse[i] = kNoKey;
          highest = fmaxf(highest, lse[i]);
        }
        const float base = highest == kNoKey ? 0 : highest;
        const float scale = expf(before - base);
        weights *= scale;
        sum = {scale * sum.x, scale * sum.y, scale * sum.z, scale * sum.w};
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          if (lse[i] == kNoKey) continue;  // whatever its O
          const float weight = expf(lse[i] - base);
          weights += weight;
          sum = {sum.x + weight * o[i].x, sum.y + weight * o[i].y, sum.z + weight * o[i].z,
                 sum.w + weight * o[i].w};
        }
      }
      const float inverse = weights == 0 ? 0 : 1 / weights;
      store_four(to.at(b, h, row) + column,
                 {sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse});
      if (column == 0) *to_lse.at(b, h, row) = highest + logf(weights);
    }
  }

  static __device__ void store_four(Element* address, float4 o) {
    struct alignas(4 * sizeof(Element)) Four {
      Element x, y, z, w;
    };
    const Four four{kernels::from_float<Element>(o.x), kernels::from_float<Element>(o.y),
                    kernels::from_float<Element>(o.z), kernels::from_float<Element>(o.w)};
    if (reinterpret_cast<uintptr_t>(address) % sizeof(Four) == 0) {
      *reinterpret_cast<Four*>(address) = four;
      return;
    }
    address[0] = four.x;
    address[1] = four.y;
    address[2] = four.z;
    address[3] = four.w;
  }
};

// As many copies as one launch takes, in words of a type.
template <typename Word>
struct WordCopies {
  struct One {
    const Word* from;
    Word* to;
    int64_t from_pitch, to_pitch;  // in words
    int rows, row_words;
    kernels::Divisor by_row_words{1};
  };
  static constexpr size_t kMost = 64;
  One copies[kMost];
};

// The blocks of a row of the grid do one copy.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const __grid_constant__ WordCopies<Word> all) {
  const auto& copy = all.copies[blockIdx.y];
  const int words = copy.rows * copy.row_words, stride = static_cast<int>(gridDim.x) * kThreads;
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); i < words;
       i += stride) {
    const int row = copy.by_row_words.quotient(i), word = i - row * copy.row_words;
    copy.to[row * copy.to_pitch + word] = copy.from[row * copy.from_pitch + word];
  }
}

// Whether words of so many bytes make up the copy.
bool has_words(const RowCopy& copy, size_t bytes) {
  const auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  return (address(copy.to) | address(copy.from) | copy.width | copy.to_pitch | copy.from_pitch) %
             bytes ==
         0;
}

template <typename Word>
void launch_copies(std::span<const RowCopy> copies, Stream stream) {
  constexpr size_t kBytes = sizeof(Word);
  WordCopies<Word> all{};
  std::ranges::transform(copies, all.copies, [](const RowCopy& copy) {
    const auto row_words = static_cast<int>(copy.width / kBytes);
    return typename WordCopies<Word>::One{static_cast<const Word*>(copy.from),
                                          static_cast<Word*>(copy.to),
                                          static_cast<int64_t>(copy.from_pitch / kBytes),
                                          static_cast<int64_t>(copy.to_pitch / kBytes),
                                          static_cast<int>(copy.height),
                                          row_words,
                                          kernels::Divisor(row_words)};
  });
  constexpr unsigned kBlocks = 132 * 8;  // as many as an H100 runs at once
  const auto count = static_cast<unsigned>(copies.size());
  copy_kernel<<<dim3((kBlocks + count - 1) / count, count), kThreads, 0,
                static_cast<cudaStream_t>(stream.cuda)>>>(all);
  FLASHBENCH_CUDA(cudaGetLastError());
}

template <typename Word>
void launch_all(std::span<const RowCopy> copies, Stream stream) {
  while (!copies.empty()) {
    const size_t count = std::min(copies.size(), WordCopies<Word>::kMost);
    launch_copies<Word>(copies.first(count), stream);
    copies = copies.subspan(count);
  }
}

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
  void copy(const std::vector<RowCopy>& copies, Stream stream) const override {
    std::vector<RowCopy> wide, narrow;
    for (const RowCopy& copy : copies) {
      (has_words(copy, sizeof(uint4)) ? wide : narrow).push_back(copy);
    }
    launch_all<uint4>(wide, stream);
    launch_all<unsigned short>(narrow, stream);
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
  void merge_parts(const std::vector<PartialRows>& parts, const TensorView& o,
                   const TensorView& logsumexp, Stream stream) const override {
    kernels::with_type(o.dtype, [&]<typename Element>(Element) {
      MergeParts<Element> work{};
      for (const PartialRows& part : parts) {
        work.part_o[work.parts] = static_cast<const float*>(part.o.data);
        work.part_lse[work.parts++] = static_cast<const float*>(part.logsumexp.data);
      }
      work.first_o = floats(ConstTensorView(parts.front().o));
      work.first_lse = floats(ConstTensorView(parts.front().logsumexp));
      work.to = rows_of_type<Element>(o);
      work.to_lse = floats(logsumexp);
      launch_for_rows(o, work, stream);
    });
  }
};

}  // namespace

std::unique_ptr<RowWork> make_cuda_row_work() {
  return std::make_unique<CudaRowWork>();
}

}  // namespace flashbench
