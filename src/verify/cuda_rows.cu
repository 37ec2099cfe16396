#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "attention/host_memory.h"
#include "attention/pages.h"
#include "verify/cuda_dtype.h"
#include "verify/cuda_rows.h"

namespace flashbench::verify {

namespace {

// The sizes and strides of a tensor, as kernels receive them.
struct Strides {
  int64_t heads, columns, head, row;
};

Strides strides_of(const ConstTensorView& t) {
  return {t.heads, t.head_dim, t.head_stride, t.row_stride};
}

// The rows of a request: where the first of head 0 starts, and how many there are.
struct OwnRows {
  int64_t first, count;
};

// A thread block checks the rows of one head, one after the other; grid [batch * heads].
template <typename T>
__global__ void find_nonfinite(const T* data, const OwnRows* own, Strides s, int* not_finite) {
  const OwnRows rows = own[blockIdx.x / s.heads];
  const T* first = data + rows.first + blockIdx.x % s.heads * s.head;
  bool found = false;
  for (int64_t i = threadIdx.x; i < rows.count * s.columns; i += blockDim.x) {
    found |= !isfinite(static_cast<float>(first[i / s.columns * s.row + i % s.columns]));
  }
  if (found) not_finite[blockIdx.x] = 1;
}

// A warp widens a row; grid [rows / 8].
template <typename T>
__global__ void widen_rows(const T* head, Strides s, RowNumbers numbers, int64_t count,
                           double* values, double* squares, double* norms) {
  const int64_t i = blockIdx.x * int64_t{8} + threadIdx.x / 32;
  if (i >= count) return;
  const T* from = head + numbers[i] * s.row;
  double norm = 0;
  for (int64_t column = threadIdx.x % 32; column < s.columns; column += 32) {
    const auto value = static_cast<double>(static_cast<float>(from[column]));
    values[i * s.columns + column] = value;
    squares[i * s.columns + column] = value * value;
    norm += value * value;
  }
  for (int lane = 16; lane > 0; lane /= 2) norm += __shfl_xor_sync(0xffffffff, norm, lane);
  if (threadIdx.x % 32 == 0) norms[i] = norm;
}

template <typename T>
__global__ void pack_rows(const T* head, Strides s, RowNumbers numbers, int64_t count, T* to) {
  const int64_t i = blockIdx.x * int64_t{256} + threadIdx.x;
  if (i >= count * s.columns) return;
  to[i] = head[numbers[i / s.columns] * s.row + i % s.columns];
}

template <typename T>
const T* head_of(const GpuTensor& tensor, const GpuRows& rows) {
  const ConstTensorView& view = tensor.view();
  return static_cast<const T*>(view.data) + view.offset(rows.batch, rows.head, 0);
}

// Copies the keys or values of all requests from their pages to `to`.
void copy_from_pages(const ConstTensorView& from, const TensorView& to, ThreadPool& pool) {
  const int64_t element = element_size(from.dtype);
  const auto bytes = static_cast<size_t>(from.head_dim * element);
  pool.parallel_for(from.batch * from.heads, [&](int64_t item, int) {
    const int64_t b = item / from.heads, h = item % from.heads;
    for (int64_t row = 0; row < from.rows(b); ++row) {
      std::memcpy(static_cast<std::byte*>(to.data) + to.offset(b, h, row) * element,
                  static_cast<const std::byte*>(from.data) + from.offset(b, h, row) * element,
                  bytes);
    }
  });
}

}  // namespace

void* allocate_on_gpu(size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error; the device still works
    throw OutOfMemory("the GPU has no room for the reference");
  }
  FLASHBENCH_CUDA(status);
  return data;
}

GpuTensor::GpuTensor(const ConstTensorView& host, const RequestRows* own, cudaStream_t stream)
    : view_(host) {
  std::vector<OwnRows> rows;
  int64_t extent = 0;
  for (int64_t b = 0; b < host.batch; ++b) {
    rows.push_back({host.offset(b, 0, 0), own == nullptr ? host.rows(b) : own->count(b)});
    if (host.rows(b) == 0) continue;
    extent = std::max(extent, host.offset(b, host.heads - 1, host.rows(b) - 1) + host.head_dim);
  }
  const auto bytes = static_cast<size_t>(extent * element_size(host.dtype));
  data_ = GpuArray<std::byte>(static_cast<int64_t>(bytes));
  FLASHBENCH_CUDA(cudaMemcpyAsync(data_.data(), host.data, bytes, cudaMemcpyHostToDevice, stream));
  view_.data = data_.data();

  const int64_t heads = host.batch * host.heads;
  const GpuArray<OwnRows> own_rows = upload<OwnRows>(rows, stream);
  const GpuArray<int> found(heads);
  FLASHBENCH_CUDA(
      cudaMemsetAsync(found.data(), 0, static_cast<size_t>(heads) * sizeof(int), stream));
  with_type(host.dtype, [&](auto zero) {
    using T = decltype(zero);
    find_nonfinite<<<static_cast<unsigned>(heads), 256, 0, stream>>>(
        static_cast<const T*>(view_.data), own_rows.data(), strides_of(view_), found.data());
  });
  FLASHBENCH_CUDA(cudaGetLastError());
  not_finite_.resize(static_cast<size_t>(heads));
  FLASHBENCH_CUDA(cudaMemcpyAsync(not_finite_.data(), found.data(),
                                  not_finite_.size() * sizeof(int), cudaMemcpyDeviceToHost,
                                  stream));
  FLASHBENCH_CUDA(cudaStreamSynchronize(stream));
}

Problem on_gpu(const Problem& p) {
  if (!p.is_paged()) return p;
  Problem flat = without_pages(p);
  flat.layout = p.lengths ? Layout::ragged : Layout::bshd;
  return flat;
}

GpuInputs::GpuInputs(const Problem& p, const Inputs& host, ThreadPool& pool, cudaStream_t stream)
    : lengths(p.lengths) {
  const RequestRows* queries = lengths ? &lengths->queries() : nullptr;
  const RequestRows* keys = lengths ? &lengths->keys() : nullptr;
  const auto upload_keys = [&](const ConstTensorView& tensor, TensorView flat) {
    if (!p.is_paged()) return GpuTensor(tensor, keys, stream);
    HostVector<std::byte> copy(static_cast<size_t>(flat.elements() * element_size(p.dtype)));
    flat.data = copy.data();
    copy_from_pages(tensor, flat, pool);
    return GpuTensor(flat, keys, stream);
  };
  const Problem flat = on_gpu(p);
  q = GpuTensor(host.q, queries, stream);
  k = upload_keys(host.k, key_view<void>(nullptr, flat));
  v = upload_keys(host.v, value_view<void>(nullptr, flat));
  if (p.pass == Pass::backward) d_o = GpuTensor(host.d_o, queries, stream);
  std::vector<RowRange> seen;
  for (int64_t b = 0; b < (lengths ? p.batch : 1); ++b) {
    const Problem request = p.request(b);
    for (int64_t row = 0; row < request.q_len; ++row) seen.push_back(request.visible_keys(row));
  }
  visible = upload<RowRange>(seen, stream);
}

void widen(const GpuTensor& tensor, const GpuRows& rows, WideRows& to, cudaStream_t stream) {
  to.finite = tensor.finite(rows.batch, rows.head);
  with_type(tensor.view().dtype, [&](auto zero) {
    using T = decltype(zero);
    widen_rows<<<blocks_of_256(32 * rows.count()), 256, 0, stream>>>(
        head_of<T>(tensor, rows), strides_of(tensor.view()), rows.numbers, rows.count(),
        to.values.data(), to.squares.data(), to.norms.data());
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

void pack(const GpuTensor& tensor, const GpuRows& rows, void* to, cudaStream_t stream) {
  with_type(tensor.view().dtype, [&](auto zero) {
    using T = decltype(zero);
    pack_rows<<<blocks_of_256(rows.count() * tensor.view().head_dim), 256, 0, stream>>>(
        head_of<T>(tensor, rows), strides_of(tensor.view()), rows.numbers, rows.count(),
        static_cast<T*>(to));
  });
  FLASHBENCH_CUDA(cudaGetLastError());
}

int64_t tile_rows(int64_t own_rows, int64_t other_rows) {
  return std::min({other_rows, kMaxOwnRows, kMaxTileElements / std::min(own_rows, kMaxOwnRows)});
}

RowRange seen_keys(const Problem& request, const GpuRows& queries) {
  return {request.visible_keys(queries.rows.front()).first,
          request.visible_keys(queries.rows.back()).end};
}

RowRange places_within(const GpuRows& rows, RowRange range) {
  const auto place_of = [&](int64_t row) {
    return std::lower_bound(rows.rows.begin(), rows.rows.end(), row) - rows.rows.begin();
  };
  return {place_of(range.first), place_of(range.end)};
}

RowRange places_that_see(const Problem& request, const GpuRows& queries, RowRange keys) {
  return places_within(queries, {request.queries_that_see(keys.first).first,
                                 request.queries_that_see(keys.end - 1).end});
}

}  // namespace flashbench::verify
