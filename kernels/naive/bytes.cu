#include "kernels/naive/bytes.h"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <stdexcept>

#include "device/cuda_call.h"
#include "kernels/naive/rows.cuh"
#include "kernels/naive/vectors.cuh"

namespace flashbench::kernels {

namespace {

using namespace naive;

constexpr int kWidth = 16;               // bytes that a thread copies, scores that it reads at once
constexpr int kLongestBytesRow = 32768;  // of scores that fit registers
constexpr int kTile = 64;                // rows and columns of V that a thread block transposes
constexpr float kPScale = 1 << kBytesPExponent;

// 16 bytes from any address, of which the first `count` exist.
__device__ uint4 load_bytes(const uint8_t* from, int count) {
  if (count >= kWidth && reinterpret_cast<uintptr_t>(from) % kWidth == 0) {
    return *reinterpret_cast<const uint4*>(from);
  }
  uint32_t words[4] = {};
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (j < count) words[j / 4] |= static_cast<uint32_t>(from[j]) << (j % 4 * 8);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Rows [first, first + rows) of each of `sharers` heads of a group, and the matrices that they are
// copied to: [groups, group_rows, vectors of 16 bytes].
struct Packing {
  RowsOf from;
  uint32_t sharers, first, rows, group_rows, vectors;
  int64_t all_vectors;
};

__global__ __launch_bounds__(kMinThreads) void pack_kernel(Packing a, const uint8_t* from,
                                                           uint4* to) {
  const int64_t index = int64_t{blockIdx.x} * kMinThreads + threadIdx.x;
  if (index >= a.all_vectors) return;
  const auto column = static_cast<int>(index % a.vectors) * kWidth;
  const int64_t packed_row = index / a.vectors;
  const int64_t group = packed_row / a.group_rows;
  const auto row = static_cast<uint32_t>(packed_row % a.group_rows);
  uint4 bytes{};
  if (row < a.sharers * a.rows) {
    // Heads of all batches are numbered through, those of a group one after the other.
    const int64_t head = group * a.sharers + row / a.rows;
    bytes = load_bytes(from + a.from.offset(head, a.first + row % a.rows) + column,
                       a.from.head_dim - column);
  }
  to[index] = bytes;
}

void pack(const Packing& packing, int64_t groups, const void* from, void* to, cudaStream_t stream) {
  Packing a = packing;
  a.all_vectors = groups * a.group_rows * a.vectors;
  pack_kernel<<<grid(a.all_vectors, kMinThreads), kMinThreads, 0, stream>>>(
      a, static_cast<const uint8_t*>(from), static_cast<uint4*>(to));
  FLASHBENCH_CUDA(cudaGetLastError());
}

struct Transposing {
  RowsOf from;
  uint32_t column_tiles, key_tiles;
  int columns, keys;  // of the result
};

// A thread block copies a tile of kTile keys and columns.
__global__ __launch_bounds__(kTile* kTile / kWidth) void transpose_kernel(Transposing a,
                                                                          const uint8_t* from,
                                                                          uint8_t* to) {
  __shared__ uint8_t tile[kTile][kTile + 4];  // of keys; in the distance of an odd number of words
  const auto thread = static_cast<int>(threadIdx.x);
  const int first_key = static_cast<int>(blockIdx.x % a.key_tiles) * kTile;
  const uint32_t rest = blockIdx.x / a.key_tiles;
  const int first_column = static_cast<int>(rest % a.column_tiles) * kTile;
  const uint32_t head = rest / a.column_tiles;
  {
    constexpr int kVectors = kTile / kWidth;
    const int key = first_key + thread / kVectors, place = thread % kVectors * kWidth;
    uint4 bytes{};
    if (key < a.from.length && first_column + place < a.from.head_dim) {
      bytes = load_bytes(from + a.from.offset(head, key) + first_column + place,
                         a.from.head_dim - first_column - place);
    }
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      tile[thread / kVectors][place + j] = static_cast<uint8_t>(words[j / 4] >> (j % 4 * 8));
    }
  }
  __syncthreads();
  const int column = thread % kTile, place = thread / kTile * kWidth;
  if (first_column + column >= a.columns || first_key + place >= a.keys) return;
  uint32_t words[4] = {};
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    words[j / 4] |= static_cast<uint32_t>(tile[place + j][column]) << (j % 4 * 8);
  }
  const int64_t row = int64_t{head} * a.columns + first_column + column;
  *reinterpret_cast<uint4*>(to + row * a.keys + first_key + place) =
      make_uint4(words[0], words[1], words[2], words[3]);
}

// The factor of a row whose factors are one a head at most.
__device__ float factor_of(const Descales& factors, int64_t batch, int64_t head) {
  return factors.data[batch * factors.batch_stride + head * factors.head_stride];
}

// A row of a block and the keys that it sees.
struct BytesRow : SeenKeys {
  int64_t number;  // among the rows of all groups' matrices
  uint32_t batch, head;
  int64_t query;
  bool exists;

  // `index` counts rows without padding, in the order of the groups' matrices.
  __device__ BytesRow(const BytesBlock& block, uint32_t index) {
    const auto rows = static_cast<uint32_t>(block.rows);
    const auto sharers = static_cast<uint32_t>(block.q_heads / block.kv_heads);
    const auto kv_heads = static_cast<uint32_t>(block.kv_heads);
    const uint32_t group = index / (rows * sharers), of_group = index % (rows * sharers);
    number = group * block.group_rows + of_group;
    batch = group / kv_heads;
    head = group % kv_heads * sharers + of_group / rows;
    query = block.first + of_group % rows;
    const auto within = [&](int64_t key) {
      return static_cast<int>(key < 0 ? 0 : key < block.kv_len ? key : block.kv_len);
    };
    exists = group < block.groups;
    first = exists ? within(query + block.band.first_from) : 0;
    end = exists ? within(query + block.band.end_from) : 0;
  }

  __device__ uint32_t kv_head(const BytesBlock& block) const {
    return head / static_cast<uint32_t>(block.q_heads / block.kv_heads);
  }
  __device__ int64_t statistic(const BytesBlock& block) const {
    return (batch * block.q_heads + head) * block.q_len + query;
  }
};

struct BytesSoftmax {
  BytesBlock block;
  float scale;
  Descales q, k;
  uint8_t* p;
  float *sums, *logsumexp;

  // What a product is multiplied by. Its sign is that of the scale, and is applied apart: a score
  // is `unit` times a product, negated if that is negative, so that the largest is the largest.
  __device__ float unit(const BytesRow& row) const {
    if (!row.exists) return 0;
    return scale * factor_of(q, row.batch, row.head) * factor_of(k, row.batch, row.kv_head(block));
  }

  __device__ void finish(const BytesRow& row, const RowSum& total, float unit) const {
    sums[row.number] = total.sum;
    logsumexp[row.statistic(block)] = total.logsumexp(unit);
  }
};

template <typename In>
__device__ void load_products(const In* from, bool negative, float (&x)[kWidth]) {
  load_vector(from, x);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) x[j] = negative ? -x[j] : x[j];
}

__device__ void store_e4m3(const float (&x)[kWidth], uint8_t* to) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto low =
        __nv_cvt_float2_to_fp8x2(make_float2(x[4 * i], x[4 * i + 1]), __NV_SATFINITE, __NV_E4M3);
    const auto high = __nv_cvt_float2_to_fp8x2(make_float2(x[4 * i + 2], x[4 * i + 3]),
                                               __NV_SATFINITE, __NV_E4M3);
    words[i] = low | static_cast<uint32_t>(high) << 16;
  }
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

// Rows that stay in registers, as in softmax.cu.
template <typename In, int kThreads, int kVectors>
__global__ __launch_bounds__(kThreads < kMinThreads
                                 ? kMinThreads
                                 : kThreads) void bytes_kernel(BytesSoftmax a, const In* products) {
  constexpr int kRows = kThreads < kMinThreads ? kMinThreads / kThreads : 1;  // per thread block
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const BytesRow row(a.block, blockIdx.x * kRows + threadIdx.x / kThreads);
  const float signed_unit = a.unit(row), unit = fabsf(signed_unit);
  const int64_t at = row.number * a.block.keys;

  float x[kVectors][kWidth];
  float maximum = -kInfinity;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kThreads + thread) * kWidth;
    if (row.sees_any<kWidth>(column)) {
      load_products(products + at + column, signed_unit < 0.0f, x[i]);
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[i][j] = -kInfinity;
    }
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    mask_vector((i * kThreads + thread) * kWidth, row, -kInfinity, x[i]);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) maximum = fmaxf(maximum, x[i][j]);
  }
  maximum = finite_maximum(warp_max(maximum));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kThreads + thread) * kWidth;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[i][j] = exp_below(x[i][j], maximum, unit);
    mask_vector(column, row, 0.0f, x[i]);  // the unit may be 0 or NaN
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += x[i][j];
  }
  const RowSum total = group_sum<kThreads / kWarp>({maximum, warp_sum(sum)}, unit);
  const float factor = kPScale * exp_below(maximum, total.maximum, unit);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = (i * kThreads + thread) * kWidth;
    if (column >= a.block.keys || !row.exists) continue;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[i][j] *= factor;
    mask_vector(column, row, 0.0f, x[i]);  // the factor may be NaN
    store_e4m3(x[i], a.p + at + column);
  }
  if (thread == 0 && row.exists) a.finish(row, total, unit);
}

// Rows that do not fit registers: one pass for maximum and sum, one for P.
template <typename In>
__global__ __launch_bounds__(kMaxThreads) void long_bytes_kernel(BytesSoftmax a,
                                                                 const In* products) {
  constexpr int kStep = kMaxThreads * kWidth;
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const BytesRow row(a.block, blockIdx.x);
  const float signed_unit = a.unit(row), unit = fabsf(signed_unit);
  const int64_t at = row.number * a.block.keys;

  float x[kWidth];
  const auto load = [&](int column) {
    load_products(products + at + column, signed_unit < 0.0f, x);
    mask_vector(column, row, -kInfinity, x);
  };
  float maximum = -kInfinity, sum = 0;  // this thread's
  for (int column = first; column < row.end; column += kStep) {
    if (!row.sees_any<kWidth>(column)) continue;
    load(column);
    float next = maximum;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) next = fmaxf(next, x[j]);
    const float known = finite_maximum(next);
    if (sum != 0.0f) sum *= exp_below(maximum, known, unit);
    maximum = next;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[j] = exp_below(x[j], known, unit);
    mask_vector(column, row, 0.0f, x);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += x[j];
  }
  const float warp_maximum = finite_maximum(warp_max(maximum));
  if (sum != 0.0f) sum *= exp_below(finite_maximum(maximum), warp_maximum, unit);
  const RowSum total = group_sum<kMaxThreads / kWarp>({warp_maximum, warp_sum(sum)}, unit);
  for (int column = first; column < a.block.keys; column += kStep) {
    if (row.sees_any<kWidth>(column)) load(column);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x[j] = row.sees(column + j) ? kPScale * exp_below(x[j], total.maximum, unit) : 0.0f;
    }
    store_e4m3(x, a.p + at + column);
  }
  if (threadIdx.x == 0) a.finish(row, total, unit);
}

template <typename In>
void launch_bytes(const BytesSoftmax& a, const void* products, cudaStream_t stream) {
  const int64_t rows = a.block.groups * (a.block.q_heads / a.block.kv_heads) * a.block.rows;
  const auto* in = static_cast<const In*>(products);
  const auto launch = [&]<int kThreads, int kVectors>() {
    static_assert(kThreads * kVectors * kWidth <= kLongestBytesRow);
    if (a.block.keys > kThreads * kVectors * kWidth) return false;
    constexpr int kBlockThreads = std::max(kThreads, kMinThreads);
    bytes_kernel<In, kThreads, kVectors>
        <<<grid(rows, kBlockThreads / kThreads), kBlockThreads, 0, stream>>>(a, in);
    return true;
  };
  const bool fits = launch.template operator()<32, 1>() || launch.template operator()<32, 2>() ||
                    launch.template operator()<32, 4>() || launch.template operator()<128, 2>() ||
                    launch.template operator()<128, 4>() || launch.template operator()<256, 4>() ||
                    launch.template operator()<512, 4>();
  if (!fits) long_bytes_kernel<In><<<grid(rows, 1), kMaxThreads, 0, stream>>>(a, in);
  FLASHBENCH_CUDA(cudaGetLastError());
}

struct Finishing {
  BytesBlock block;
  Descales v;
  const float *products, *sums;
  const __nv_fp8_e4m3 *p, *transposed_v;
  int64_t columns, v_keys;
  RowsOf o;
};

// A warp writes a row.
__global__ __launch_bounds__(kMinThreads) void finish_kernel(Finishing a, __nv_bfloat16* o) {
  const BytesRow row(
      a.block, blockIdx.x * (kMinThreads / kWarp) + static_cast<uint32_t>(threadIdx.x) / kWarp);
  if (!row.exists) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  __nv_bfloat16* to = o + a.o.offset(row.batch * a.block.q_heads + row.head, row.query);
  const float sum = a.sums[row.number];
  if (sum == 0.0f) {
    for (int column = lane; column < a.o.head_dim; column += kWarp) {
      to[column] = from_float<__nv_bfloat16>(0.0f);
    }
    return;
  }
  const uint32_t kv_head = row.kv_head(a.block);
  const float factor = factor_of(a.v, row.batch, kv_head) / kPScale;
  const float inverse = __frcp_rn(sum);
  const float* products = a.products + row.number * a.columns;
  bool finite = true;
  for (int column = lane; column < a.o.head_dim; column += kWarp) {
    const float product = products[column];
    finite &= isfinite(product);
    to[column] = from_float<__nv_bfloat16>(product * inverse * factor);
  }
  if (__all_sync(kAllLanes, finite)) return;
  __syncwarp();  // each element is written again by another lane
  const __nv_fp8_e4m3* p = a.p + row.number * a.block.keys;
  const __nv_fp8_e4m3* v =
      a.transposed_v + (int64_t{row.batch} * a.block.kv_heads + kv_head) * a.columns * a.v_keys;
  for (int column = 0; column < a.o.head_dim; ++column) {
    float product = 0;
    for (int key = row.first + lane; key < row.end; key += kWarp) {
      product += static_cast<float>(p[key]) * static_cast<float>(v[column * a.v_keys + key]);
    }
    product = warp_sum(product);
    if (lane == 0) to[column] = from_float<__nv_bfloat16>(product * inverse * factor);
  }
}

uint32_t in_32_bits(int64_t value) {
  return static_cast<uint32_t>(value);
}

}  // namespace

void pack_queries(const BytesBlock& block, const ConstTensorView& q, int64_t columns, void* to,
                  cudaStream_t stream) {
  const int64_t sharers = block.q_heads / block.kv_heads;
  pack({RowsOf(q), in_32_bits(sharers), in_32_bits(block.first), in_32_bits(block.rows),
        in_32_bits(block.group_rows), in_32_bits(columns / kWidth), 0},
       block.groups, q.data, to, stream);
}

void pack_keys(const ConstTensorView& k, int64_t keys, int64_t columns, void* to,
               cudaStream_t stream) {
  pack({RowsOf(k), 1, 0, in_32_bits(k.length), in_32_bits(keys), in_32_bits(columns / kWidth), 0},
       k.batch * k.heads, k.data, to, stream);
}

void transpose_values(const ConstTensorView& v, int64_t keys, int64_t columns, void* to,
                      cudaStream_t stream) {
  const auto tiles = [](int64_t size) { return in_32_bits((size + kTile - 1) / kTile); };
  const Transposing a{RowsOf(v), tiles(columns), tiles(keys), static_cast<int>(columns),
                      static_cast<int>(keys)};
  const int64_t blocks = v.batch * v.heads * a.column_tiles * a.key_tiles;
  transpose_kernel<<<grid(blocks, 1), kTile * kTile / kWidth, 0, stream>>>(
      a, static_cast<const uint8_t*>(v.data), static_cast<uint8_t*>(to));
  FLASHBENCH_CUDA(cudaGetLastError());
}

void softmax_of_bytes(const BytesBlock& block, float scale, const Descales& q, const Descales& k,
                      const void* products, Dtype products_dtype, void* p, float* sums,
                      float* logsumexp, cudaStream_t stream) {
  const BytesSoftmax a{block, scale, q, k, static_cast<uint8_t*>(p), sums, logsumexp};
  if (products_dtype == Dtype::fp32) return launch_bytes<float>(a, products, stream);
  if (products_dtype == Dtype::bf16) return launch_bytes<__nv_bfloat16>(a, products, stream);
  throw std::logic_error("products of bytes are in fp32 or bf16");
}

void finish_rows_of_bytes(const BytesBlock& block, const Descales& v, const float* products,
                          const float* sums, const void* p, const void* transposed_v,
                          int64_t columns, int64_t v_keys, const TensorView& o,
                          cudaStream_t stream) {
  if (o.dtype != Dtype::bf16) throw std::logic_error("O of bytes is bf16");
  const Finishing a{block,
                    v,
                    products,
                    sums,
                    static_cast<const __nv_fp8_e4m3*>(p),
                    static_cast<const __nv_fp8_e4m3*>(transposed_v),
                    columns,
                    v_keys,
                    RowsOf(o)};
  const int64_t rows = block.groups * (block.q_heads / block.kv_heads) * block.rows;
  finish_kernel<<<grid(rows, kMinThreads / kWarp), kMinThreads, 0, stream>>>(
      a, static_cast<__nv_bfloat16*>(o.data));
  FLASHBENCH_CUDA(cudaGetLastError());
}

}  // namespace flashbench::kernels
