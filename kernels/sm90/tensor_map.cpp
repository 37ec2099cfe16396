#include "kernels/sm90/tensor_map.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "device/cuda_call.h"
#include "kernels/common/half_types.h"

namespace flashbench::kernels::sm90 {
namespace {

// Looked up at run time: a binary that links the driver does not start on a machine without one.
decltype(&cuTensorMapEncodeTiled) encoder() {
  constexpr unsigned kSinceCuda = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  FLASHBENCH_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kSinceCuda,
                                                   cudaEnableDefault, &result));
  if (found == nullptr) throw CudaError("the driver has no cuTensorMapEncodeTiled: update it");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

// Encodes a tensor map whose rank is the number of sizes. Strides are in bytes, for all dimensions
// but the first. The rows of a box have up to 128 bytes. If a copy had L2 read 256, it would read
// twice what a copy of the neighbouring columns asks for at the same time.
template <size_t kRank>
CUtensorMap encode(CUtensorMapDataType type, const void* data, const cuuint64_t (&sizes)[kRank],
                   const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank],
                   CUtensorMapSwizzle swizzle) {
  static const auto encode_tiled = encoder();
  cuuint32_t every_element[kRank];
  std::ranges::fill(every_element, 1);
  CUtensorMap map;
  const CUresult status =
      encode_tiled(&map, type, kRank, const_cast<void*>(data), sizes, strides, box, every_element,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw CudaError(fmt::format("cuTensorMapEncodeTiled: error {} for sizes {} with strides {}",
                                static_cast<int>(status), sizes, strides));
  }
  return map;
}

cuuint64_t unsigned_64(int64_t x) {
  return static_cast<cuuint64_t>(x);
}

CUtensorMapDataType half_type(Dtype dtype) {
  return for_half(dtype, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
}

}  // namespace

CUtensorMap tensor_map(const ConstTensorView& t, int box_rows, int box_columns) {
  const auto bytes = [&](int64_t stride) { return unsigned_64(stride * element_size(t.dtype)); };
  const auto swizzle = box_columns * element_size(t.dtype) == 128 ? CU_TENSOR_MAP_SWIZZLE_128B
                                                                  : CU_TENSOR_MAP_SWIZZLE_64B;
  return encode<4>(
      t.dtype == Dtype::e4m3 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : half_type(t.dtype), t.data,
      {unsigned_64(t.head_dim), unsigned_64(t.length), unsigned_64(t.heads), unsigned_64(t.batch)},
      {bytes(t.row_stride), bytes(t.head_stride), bytes(t.batch_stride)},
      {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows), 1, 1}, swizzle);
}

RequestMap request_map(const ConstTensorView& t, int box_rows) {
  const int64_t row_bytes = t.row_stride * element_size(t.dtype);
  const int64_t head_bytes = t.head_stride * element_size(t.dtype);
  const int64_t batch_bytes = t.ragged == nullptr ? t.batch_stride * element_size(t.dtype) : 0;
  const int64_t unit = std::gcd(row_bytes, batch_bytes);
  constexpr int64_t kMostUnits = std::numeric_limits<int32_t>::max();
  if ((t.batch * batch_bytes + t.all_rows() * row_bytes) / unit > kMostUnits) {
    throw CudaError(
        fmt::format("a tensor of {} requests, {} bytes apart, with rows {} bytes apart "
                    "is too large for its tensor map",
                    t.batch, batch_bytes, row_bytes));
  }
  constexpr cuuint64_t kRows = 1 << 30, kWrap = uint64_t{1} << 34;
  static_assert(kRows * kWrap == 0);
  return {.map = encode<5>(
              half_type(t.dtype), t.data,
              {unsigned_64(t.head_dim), kRows, unsigned_64(t.heads), kMostUnits, kRows + 1},
              {unsigned_64(row_bytes), unsigned_64(head_bytes), unsigned_64(unit),
               kWrap - unsigned_64(row_bytes)},
              {64, static_cast<cuuint32_t>(box_rows), 1, 1, 1}, CU_TENSOR_MAP_SWIZZLE_128B),
          .steps = {.request = static_cast<int>(batch_bytes / unit),
                    .row = static_cast<int>(row_bytes / unit)}};
}

CUtensorMap float_rows_map(const float* values, int64_t rows, int64_t columns, int box) {
  return encode<2>(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, values,
                   {unsigned_64(columns), unsigned_64(rows)},
                   {unsigned_64(columns) * sizeof(float)}, {static_cast<cuuint32_t>(box), 1},
                   CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace flashbench::kernels::sm90
