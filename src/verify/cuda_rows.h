// The data of the oracle on a GPU: the inputs in device memory, and rows of them in fp64.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "attention/problem.h"
#include "attention/tensors.h"
#include "device/cuda_call.h"
#include "device/device.h"
#include "host/thread_pool.h"

namespace flashbench::verify {

// Allocates device memory for the oracle, outside the device's account. Throws OutOfMemory.
void* allocate_on_gpu(size_t bytes);

template <typename T>
class GpuArray {
 public:
  GpuArray() = default;
  explicit GpuArray(int64_t count)
      : data_(static_cast<T*>(allocate_on_gpu(static_cast<size_t>(count) * sizeof(T)))) {}

  T* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* data) const { cudaFree(data); }
  };
  std::unique_ptr<T, Free> data_;
};

template <typename T>
GpuArray<T> upload(std::span<const T> values, cudaStream_t stream) {
  GpuArray<T> array(static_cast<int64_t>(values.size()));
  FLASHBENCH_CUDA(cudaMemcpyAsync(array.data(), values.data(), values.size_bytes(),
                                  cudaMemcpyHostToDevice, stream));
  return array;
}

// The numbers of some rows of one head, on the device: a list, or all rows starting with `first`.
struct RowNumbers {
  const int64_t* list = nullptr;
  int64_t first = 0;

  __host__ __device__ int64_t operator[](int64_t i) const {
    return list != nullptr ? list[i] : first + i;
  }
};

// Rows of one head that are processed together, in ascending order.
struct GpuRows {
  int64_t batch = 0, head = 0;
  std::span<const int64_t> rows;  // on the host
  RowNumbers numbers;             // the same on the device

  int64_t count() const { return static_cast<int64_t>(rows.size()); }
  // The rows at these places in the list.
  GpuRows part(RowRange places) const {
    RowNumbers tail = numbers;
    if (tail.list != nullptr) {
      tail.list += places.first;
    } else {
      tail.first += places.first;
    }
    return {batch, head,
            rows.subspan(static_cast<size_t>(places.first), static_cast<size_t>(places.size())),
            tail};
  }
};

// A tensor in device memory.
class GpuTensor {
 public:
  GpuTensor() = default;
  // `own`: the rows of each request, where others lie behind them; null if all rows are.
  GpuTensor(const ConstTensorView& host, const RequestRows* own, cudaStream_t stream);

  const ConstTensorView& view() const { return view_; }
  bool finite(int64_t batch, int64_t head) const {
    return !not_finite_[static_cast<size_t>(batch * view_.heads + head)];
  }

 private:
  GpuArray<std::byte> data_;
  ConstTensorView view_;
  std::vector<int> not_finite_;  // per head of a request: whether it has a NaN or Inf
};

// The problem with its keys and values as the GPU has them: without pages, request behind request.
Problem on_gpu(const Problem&);

struct GpuInputs {
  // Paged keys and values are copied out of their pages on the host: the reference has no kernel
  // that follows a block table, and so no error in common with a provider's.
  GpuInputs(const Problem&, const Inputs& host, ThreadPool&, cudaStream_t);

  // The visible keys of each query row of a request.
  const RowRange* visible_in(int64_t batch) const {
    return visible.data() + (lengths ? lengths->queries().first(batch) : 0);
  }

  GpuTensor q, k, v, d_o;
  std::shared_ptr<const Lengths> lengths;
  GpuArray<RowRange> visible;  // of one request after the other; of one for all of equal lengths
};

// Members of RowRange that device code can call.
__device__ inline int64_t size_of(RowRange range) {
  return range.end - range.first;
}
__device__ inline bool contains(RowRange range, int64_t row) {
  return row >= range.first && row < range.end;
}
// The part of a query's keys that lies in [first_key, first_key + keys), relative to first_key. If
// there is none, its end may lie before its first.
__device__ inline RowRange visible_in_tile(RowRange visible, int64_t first_key, int64_t keys) {
  return {max(visible.first - first_key, int64_t{0}), min(visible.end - first_key, keys)};
}

// Rows in fp64, with the values that the bounds need.
struct WideRows {
  WideRows(int64_t most_rows, int64_t columns)
      : values(most_rows * columns), squares(most_rows * columns), norms(most_rows) {}

  GpuArray<double> values;   // [rows, columns]
  GpuArray<double> squares;  // [rows, columns]
  GpuArray<double> norms;    // squared, [rows]
  bool finite = true;        // whether the whole head is
};
void widen(const GpuTensor&, const GpuRows&, WideRows&, cudaStream_t);

// Copies rows of a tensor without conversion into a dense matrix [rows, columns].
void pack(const GpuTensor&, const GpuRows&, void* to, cudaStream_t);

// A block of ("own") rows has at most kMaxOwnRows rows. It is processed against tiles of rows of
// the other side; own rows x tile rows are at most kMaxTileElements, 256 MiB in fp64, and there are
// four such tiles. Long blocks keep the whole GPU busy in products whose result is [own rows,
// head_dim].
inline constexpr int64_t kMaxOwnRows = 16384;
inline constexpr int64_t kMaxTileElements = int64_t{1} << 25;
int64_t tile_rows(int64_t own_rows, int64_t other_rows);

// The keys from the first to the last that any of these queries sees.
RowRange seen_keys(const Problem& request, const GpuRows& queries);
// The places in the list of the rows within `range`.
RowRange places_within(const GpuRows&, RowRange range);
// The places in the list of the queries that may see any of these keys.
RowRange places_that_see(const Problem& request, const GpuRows& queries, RowRange keys);

inline unsigned blocks_of_256(int64_t threads) {
  return static_cast<unsigned>((threads + 255) / 256);
}

}  // namespace flashbench::verify
