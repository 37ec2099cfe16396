#include "kernels/sm90/quantize.cuh"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "attention/recipe.h"
#include "device/cuda_call.h"
#include "inputs/hadamard.h"
#include "kernels/common/launch.h"
#include "kernels/sm90/quantize.h"

namespace flashbench::kernels::sm90 {
namespace {

// The parts of the workspace.
struct Parts {
  static constexpr size_t kAlignment = 256;

  size_t amax, descales, q, k, bytes;
  int64_t factors[3];  // of Q, K and V

  explicit Parts(const Problem& p) {
    const bool one = recipe_of(p.quantize).descale == Descale::per_tensor;
    factors[0] = one ? 1 : p.batch * p.q_heads;
    factors[1] = factors[2] = one ? 1 : p.batch * p.kv_heads;
    size_t end = 0;
    const auto take = [&](int64_t bytes_of_part) {
      const size_t begin = end;
      end += (static_cast<size_t>(bytes_of_part) + kAlignment - 1) / kAlignment * kAlignment;
      return begin;
    };
    amax = take(all_factors() * int64_t{sizeof(unsigned)});
    descales = take(all_factors() * int64_t{sizeof(float)});
    q = take(p.batch * p.q_heads * p.q_len * p.head_dim);
    k = take(p.batch * p.kv_heads * p.kv_len * p.head_dim);
    bytes = end;
  }
  int64_t all_factors() const { return factors[0] + factors[1] + factors[2]; }
};

using Kernel = CudaKernel<QuantizeArguments>;

// Q and K may be rotated, V is not.
struct Kernels {
  Kernel amax_of_rows, rows, amax_of_v, v;
};

template <int kHeadDim, bool kRotated>
constexpr Kernels kernels() {
  constexpr int kThreads = quantizing_threads(kHeadDim);
  return {{"sm90_amax", amax_kernel<kHeadDim, kRotated>, kThreads},
          {"sm90_quantize_rows", quantize_rows_kernel<kHeadDim, kRotated>, kThreads},
          {"sm90_amax", amax_kernel<kHeadDim, false>, kThreads},
          {"sm90_quantize_v", quantize_v_kernel<kHeadDim>, kThreads}};
}

template <int kHeadDim>
Kernels kernels(bool rotated) {
  return rotated ? kernels<kHeadDim, true>() : kernels<kHeadDim, false>();
}

Kernels kernels_of(const Problem& p) {
  const bool rotated = recipe_of(p.quantize).hadamard;
  switch (p.head_dim) {
    case 64:
      return kernels<64>(rotated);
    case 128:
      return kernels<128>(rotated);
    default:
      return kernels<256>(rotated);
  }
}

}  // namespace

bool is_quantized_head_dim(int64_t head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

size_t quantized_bytes(const Problem& p) {
  return Parts(p).bytes;
}

std::vector<KernelFacts> quantize_facts(const Problem& p) {
  const Kernels by = kernels_of(p);
  std::vector<KernelFacts> facts;
  for (const Kernel& kernel : {by.amax_of_rows, by.rows, by.amax_of_v, by.v}) {
    facts.push_back(kernel_facts(kernel));
  }
  return facts;
}

Inputs quantize(const Problem& p, const Inputs& in, void* workspace, uint8_t* transposed_v,
                Stream stream) {
  const Parts parts(p);
  const Recipe recipe = recipe_of(p.quantize);
  const auto part = [&](size_t at) { return static_cast<uint8_t*>(workspace) + at; };
  auto* amax = reinterpret_cast<unsigned*>(part(parts.amax));
  auto* descales = reinterpret_cast<float*>(part(parts.descales));
  FLASHBENCH_CUDA(cudaMemsetAsync(amax, 0,
                                  static_cast<size_t>(parts.all_factors()) * sizeof(unsigned),
                                  static_cast<cudaStream_t>(stream.cuda)));
  uint32_t signs[8] = {};
  for (int column = 0; column < p.head_dim; ++column) {
    if (hadamard_sign(column) < 0) signs[column / 32] |= uint32_t{1} << column % 32;
  }

  const auto round = [&](const ConstTensorView& from, uint8_t* to, int64_t factors,
                         const Kernel& find, const Kernel& divide) {
    QuantizeArguments a{
        .from = static_cast<const __nv_bfloat16*>(from.data),
        .batch_stride = from.batch_stride,
        .head_stride = from.head_stride,
        .row_stride = from.row_stride,
        .to = to,
        .amax = amax,
        .descales = descales,
        .heads = static_cast<int>(from.heads),
        .rows = static_cast<int>(from.length),
        .row_blocks = static_cast<int>((from.length + kQuantizedRows - 1) / kQuantizedRows),
        .one_factor = recipe.descale == Descale::per_tensor,
        .signs = {}};
    std::copy(std::begin(signs), std::end(signs), a.signs);
    const int64_t blocks = from.batch * from.heads * a.row_blocks;
    launch_kernel(find, blocks, a, stream);
    launch_kernel(divide, blocks, a, stream);
    ConstTensorView rounded{to,
                            Dtype::e4m3,
                            from.batch,
                            from.heads,
                            from.length,
                            from.head_dim,
                            from.heads * from.length * from.head_dim,
                            from.length * from.head_dim,
                            from.head_dim};
    rounded.descales = {descales, a.one_factor ? 0 : from.heads, a.one_factor ? 0 : 1, 0};
    amax += factors;
    descales += factors;
    return rounded;
  };
  const Kernels by = kernels_of(p);
  Inputs rounded = in;
  rounded.q = round(in.q, part(parts.q), parts.factors[0], by.amax_of_rows, by.rows);
  rounded.k = round(in.k, part(parts.k), parts.factors[1], by.amax_of_rows, by.rows);
  rounded.v = round(in.v, transposed_v, parts.factors[2], by.amax_of_v, by.v);
  return rounded;
}

}  // namespace flashbench::kernels::sm90
