// Fused attention on a GPU as a flashbench plugin, built against plugin.h and CUDA alone. A warp
// computes a row of O: it loops over the keys one by one, and keeps the row and the softmax's
// maximum and sum in registers. Written to be read, not to be fast; forward only.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <new>

#include "flashbench/plugin.h"

namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 4;               // per thread block
constexpr int kColumns = 256 / kLanes;  // per lane, for the largest head_dim
constexpr unsigned kAllLanes = 0xffffffff;

__device__ float to_float(float x) {
  return x;
}
__device__ float to_float(__half x) {
  return __half2float(x);
}
__device__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ void store(float x, float* to) {
  *to = x;
}
__device__ void store(float x, __half* to) {
  *to = __float2half(x);
}
__device__ void store(float x, __nv_bfloat16* to) {
  *to = __float2bfloat16(x);
}

template <typename T>
__device__ T* row(const flashbench_tensor& t, int64_t batch, int64_t head, int64_t index) {
  return static_cast<T*>(t.data) + batch * t.strides[0] + head * t.strides[1] +
         index * t.strides[2];
}

__device__ float sum_of_lanes(float x) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}

__device__ int64_t visible_keys(const flashbench_problem& p, int64_t query) {
  if (p.mask == FLASHBENCH_MASK_NONE) return p.kv_len;
  const int64_t diagonal = p.mask == FLASHBENCH_MASK_CAUSAL_BOTTOM_RIGHT ? p.kv_len - p.q_len : 0;
  return max(int64_t{0}, min(p.kv_len, query + diagonal + 1));
}

// Lane c of a warp computes columns c, c + 32, ... of its row.
template <typename T>
__global__ void forward_rows(flashbench_problem p, flashbench_tensors t) {
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (warp >= p.batch * p.q_heads * p.q_len) return;
  const int64_t query = warp % p.q_len;
  const int64_t head = warp / p.q_len % p.q_heads;
  const int64_t kv_head = head / (p.q_heads / p.kv_heads);
  const int64_t batch = warp / p.q_len / p.q_heads;
  const int lane = threadIdx.x % kLanes;

  float q[kColumns] = {}, o[kColumns] = {};
  const T* q_row = row<const T>(t.q, batch, head, query);
  for (int i = 0; i < kColumns; ++i) {
    if (lane + i * kLanes < p.head_dim) q[i] = to_float(q_row[lane + i * kLanes]);
  }

  float largest = -INFINITY, sum = 0;
  const int64_t keys = visible_keys(p, query);
  for (int64_t key = 0; key < keys; ++key) {
    const T* k = row<const T>(t.k, batch, kv_head, key);
    const T* v = row<const T>(t.v, batch, kv_head, key);
    float product = 0;
    for (int i = 0; i < kColumns; ++i) {
      const int column = lane + i * kLanes;
      if (column < p.head_dim) product += q[i] * to_float(k[column]);
    }
    const float score = static_cast<float>(p.scale) * sum_of_lanes(product);
    const float larger = fmaxf(largest, score);
    const float rescale = expf(largest - larger);  // 0 before the first key
    const float weight = expf(score - larger);
    sum = sum * rescale + weight;
    for (int i = 0; i < kColumns; ++i) {
      const int column = lane + i * kLanes;
      if (column < p.head_dim) o[i] = o[i] * rescale + weight * to_float(v[column]);
    }
    largest = larger;
  }

  T* o_row = row<T>(t.o, batch, head, query);
  for (int i = 0; i < kColumns; ++i) {
    const int column = lane + i * kLanes;
    if (column < p.head_dim) store(keys > 0 ? o[i] / sum : 0, o_row + column);
  }
  if (lane == 0) t.logsumexp[warp] = keys > 0 ? largest + logf(sum) : -INFINITY;
}

// ---- the interface

flashbench_status supports(const flashbench_problem* p, const flashbench_device*, char* why,
                           size_t why_bytes) {
  if (p->pass == FLASHBENCH_FORWARD) return FLASHBENCH_OK;
  std::snprintf(why, why_bytes, "this example has no backward pass");
  return FLASHBENCH_UNSUPPORTED;
}

}  // namespace

struct flashbench_session {
  flashbench_problem problem;
};

namespace {

flashbench_status prepare(const flashbench_problem* p, const flashbench_device*, void*, int64_t,
                          flashbench_session** session, char* why, size_t why_bytes) {
  *session = new (std::nothrow) flashbench_session{*p};
  if (*session != nullptr) return FLASHBENCH_OK;
  std::snprintf(why, why_bytes, "the host has no memory for a session");
  return FLASHBENCH_OUT_OF_MEMORY;
}

flashbench_status run(flashbench_session* session, const flashbench_tensors* t, void* stream,
                      char* why, size_t why_bytes) {
  const flashbench_problem& p = session->problem;
  const int64_t rows = p.batch * p.q_heads * p.q_len;
  const dim3 blocks(static_cast<unsigned>((rows + kWarps - 1) / kWarps));
  const auto s = static_cast<cudaStream_t>(stream);
  switch (p.dtype) {
    case FLASHBENCH_FP32:
      forward_rows<float><<<blocks, kWarps * kLanes, 0, s>>>(p, *t);
      break;
    case FLASHBENCH_FP16:
      forward_rows<__half><<<blocks, kWarps * kLanes, 0, s>>>(p, *t);
      break;
    default:
      forward_rows<__nv_bfloat16><<<blocks, kWarps * kLanes, 0, s>>>(p, *t);
  }
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return FLASHBENCH_OK;
  std::snprintf(why, why_bytes, "forward_rows: %s", cudaGetErrorString(status));
  return FLASHBENCH_ERROR;
}

void destroy(flashbench_session* session) {
  delete session;
}

const char* kernel(const flashbench_session*) {
  return "forward_rows, a warp a row";
}

}  // namespace

extern "C" const uint32_t flashbench_plugin_abi_version = FLASHBENCH_PLUGIN_ABI_VERSION;
extern "C" const flashbench_plugin flashbench_plugin_table = {
    sizeof(flashbench_plugin),
    "the CUDA example: a warp for each row",
    FLASHBENCH_CUDA,
    supports,
    nullptr,  // no workspace
    prepare,
    run,
    destroy,
    kernel,
    nullptr,  // requested bytes: not known
};
