#include "kernels/sm90/tensor_map.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/cuda_call.h"

namespace flashbench::kernels::sm90 {
namespace {

// Found at run time, because a binary that links the driver does not start where there is none.
decltype(&cuTensorMapEncodeTiled) encoder() {
  constexpr unsigned kSinceCuda = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  FLASHBENCH_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kSinceCuda,
                                                   cudaEnableDefault, &result));
  if (found == nullptr) throw CudaError("the driver has no cuTensorMapEncodeTiled: update it");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

}  // namespace

CUtensorMap tensor_map(const ConstTensorView& t, int box_rows) {
  static const auto encode = encoder();
  const auto unsigned_64 = [](int64_t x) { return static_cast<cuuint64_t>(x); };
  const auto bytes = [&](int64_t stride) { return unsigned_64(stride * element_size(t.dtype)); };
  const cuuint64_t sizes[] = {unsigned_64(t.head_dim), unsigned_64(t.length), unsigned_64(t.heads),
                              unsigned_64(t.batch)};
  const cuuint64_t strides[] = {bytes(t.row_stride), bytes(t.head_stride), bytes(t.batch_stride)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), 1, 1};
  const cuuint32_t every_element[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult status = encode(
      &map,
      t.dtype == Dtype::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      4, const_cast<void*>(t.data), sizes, strides, box, every_element,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw CudaError(
        fmt::format("cuTensorMapEncodeTiled: error {} for [{}, {}, {}, {}] with strides {}, {}, {}",
                    static_cast<int>(status), t.batch, t.heads, t.length, t.head_dim,
                    t.batch_stride, t.head_stride, t.row_stride));
  }
  return map;
}

}  // namespace flashbench::kernels::sm90
