#include "kernels/naive/gather_pages.h"

#include <algorithm>
#include <cstdint>

#include "device/cuda_call.h"
#include "kernels/common/alignment.h"
#include "kernels/common/strides.h"

namespace flashbench::kernels {

namespace {

constexpr int kGatherThreads = 128;
constexpr int kLanesOfRow = 16;  // a row of 128 elements of 16 bits is as many vectors
constexpr int kRowsAtOnce = kGatherThreads / kLanesOfRow;
constexpr int kRowsOfBlock = 8 * kRowsAtOnce;

struct Gather {
  const int32_t* table;
  int64_t table_stride;
  uint32_t page_size;
  uint32_t heads, rows, blocks_of_head;
  int columns;
  Strides from, to;  // in elements of the type that is copied
};

// A thread block copies kRowsOfBlock rows of a head.
template <typename T>
__global__ __launch_bounds__(kGatherThreads) void gather_kernel(Gather g, const T* from, T* to) {
  const uint32_t head_of_batch = blockIdx.x / g.blocks_of_head;
  const uint32_t b = head_of_batch / g.heads, h = head_of_batch % g.heads;
  const uint32_t first = blockIdx.x % g.blocks_of_head * kRowsOfBlock;
  const int32_t* pages = g.table + b * g.table_stride;
  const T* from_head = from + h * g.from.head;
  T* to_head = to + b * g.to.batch + h * g.to.head;
#pragma unroll
  for (uint32_t i = 0; i < kRowsOfBlock; i += kRowsAtOnce) {
    const uint32_t row = first + i + threadIdx.x / kLanesOfRow;
    if (row >= g.rows) return;
    const T* from_row =
        from_head + pages[row / g.page_size] * g.from.batch + row % g.page_size * g.from.row;
    T* to_row = to_head + row * g.to.row;
    for (int column = threadIdx.x % kLanesOfRow; column < g.columns; column += kLanesOfRow) {
      to_row[column] = from_row[column];
    }
  }
}

template <typename View>
Strides strides_in(const View& t, int64_t elements) {
  return {t.batch_stride / elements, t.head_stride / elements, t.row_stride / elements};
}

template <typename T>
void launch_gather(const ConstTensorView& from, const TensorView& to, cudaStream_t stream) {
  const auto elements = static_cast<int64_t>(sizeof(T)) / element_size(from.dtype);
  Gather g;
  g.table = from.pages.table;
  g.table_stride = from.pages.stride;
  g.page_size = static_cast<uint32_t>(std::min(from.pages.size, to.length));
  g.heads = static_cast<uint32_t>(to.heads);
  g.rows = static_cast<uint32_t>(to.length);
  g.blocks_of_head = (g.rows + kRowsOfBlock - 1) / kRowsOfBlock;
  g.columns = static_cast<int>(to.head_dim / elements);
  g.from = strides_in(from, elements);
  g.to = strides_in(to, elements);
  const auto blocks = static_cast<unsigned>(to.batch) * g.heads * g.blocks_of_head;
  gather_kernel<T><<<blocks, kGatherThreads, 0, stream>>>(g, static_cast<const T*>(from.data),
                                                          static_cast<T*>(to.data));
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace

void gather_pages(const ConstTensorView& from, const TensorView& to, cudaStream_t stream) {
  if (to.batch * to.length == 0) return;
  if (rows_aligned(from) && rows_aligned(to)) return launch_gather<int4>(from, to, stream);
  if (element_size(from.dtype) == 2) return launch_gather<uint16_t>(from, to, stream);
  launch_gather<uint32_t>(from, to, stream);
}

}  // namespace flashbench::kernels
