#include <algorithm>
#include <vector>

#include "attention/recipe.h"
#include "inputs/hadamard.h"
#include "kernels/common/launch.h"
#include "kernels/sm90/quantize.cuh"
#include "kernels/sm90/quantize.h"
#include "kernels/sm90/quantize_heads.cuh"
#include "kernels/sm90/tensor_map.h"

namespace flashbench::kernels::sm90 {
namespace {

int64_t row_blocks(int64_t rows) {
  return (rows + kQuantizedRows - 1) / kQuantizedRows;
}

// Blocks of columns of a block of rows.
int64_t column_blocks(const Problem& p) {
  const bool rotated = recipe_of(p.quantize).hadamard;
  return p.head_dim / quantized_columns(static_cast<int>(p.head_dim), rotated);
}

// The parts of the workspace.
struct Parts {
  static constexpr size_t kAlignment = 256;

  size_t counters, amaxes, descales, q, k, bytes;
  int64_t factors[3], blocks[3];  // of Q, K and V

  explicit Parts(const Problem& p) {
    const Recipe recipe = recipe_of(p.quantize);
    const bool one = recipe.descale == Descale::per_tensor;
    factors[0] = one ? 1 : p.batch * p.q_heads;
    factors[1] = factors[2] = one ? 1 : p.batch * p.kv_heads;
    size_t end = 0;
    const auto take = [&](int64_t bytes_of_part) {
      const size_t begin = end;
      end += (static_cast<size_t>(bytes_of_part) + kAlignment - 1) / kAlignment * kAlignment;
      return begin;
    };
    blocks[0] = p.batch * p.q_heads * row_blocks(p.q_len) * column_blocks(p);
    blocks[1] = blocks[2] = p.batch * p.kv_heads * row_blocks(p.kv_len) * column_blocks(p);
    counters = take(2 * sizeof(unsigned));
    amaxes = take((blocks[0] + blocks[1] + blocks[2]) * int64_t{sizeof(unsigned)});
    descales = take((factors[0] + factors[1] + factors[2]) * int64_t{sizeof(float)});
    q = take(p.batch * p.q_heads * p.q_len * p.head_dim);
    k = take(p.batch * p.kv_heads * p.kv_len * p.head_dim);
    bytes = end;
  }
};

// `heads` makes one launch of it; where it cannot, `amax` and `round` make two.
struct Kernels {
  CudaKernel<QuantizeArguments> amax, round;
  CudaKernel<QuantizeHeadsArguments> heads;
  int heads_at_once;      // thread blocks of it on a multiprocessor
  int reported_at_least;  // blocks of rows of each, before it waits for others
};

template <int kHeadDim, bool kRotated>
constexpr Kernels kernels() {
  constexpr int kThreads = quantizing_threads(quantized_columns(kHeadDim, kRotated));
  using Heads = QuantizeHeads<kHeadDim>;
  return {{"sm90_amax", amax_kernel<kHeadDim, kRotated>, kThreads},
          {"sm90_quantize", quantize_kernel<kHeadDim, kRotated>, kThreads},
          {"sm90_quantize_heads", quantize_heads_kernel<kHeadDim>, Heads::kThreads,
           sizeof(typename Heads::Shared)},
          Heads::kAtOnce,
          Heads::kSlots};
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

// Whether the heads are rounded by one launch, and if so, of how many thread blocks.
int64_t thread_blocks_at_once(const Problem& p, const DeviceInfo& device) {
  return int64_t{device.threads} * kernels_of(p).heads_at_once;
}
bool is_at_once(const Problem& p, const DeviceInfo& device) {
  const Recipe recipe = recipe_of(p.quantize);
  return recipe.descale == Descale::per_head && !recipe.hadamard &&
         row_blocks(std::max(p.q_len, p.kv_len)) * column_blocks(p) <=
             thread_blocks_at_once(p, device) * kernels_of(p).reported_at_least;
}

}  // namespace

bool is_quantized_head_dim(int64_t head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

size_t quantized_bytes(const Problem& p) {
  return Parts(p).bytes;
}

std::vector<KernelFacts> quantize_facts(const Problem& p, const DeviceInfo& device) {
  const Kernels by = kernels_of(p);
  if (is_at_once(p, device)) return {kernel_facts(by.heads)};
  return {kernel_facts(by.amax), kernel_facts(by.round)};
}

Inputs quantize(const Launch& at, const Inputs& in, void* workspace, uint8_t* transposed_v,
                Stream stream) {
  const Problem& p = at.problem;
  const Parts parts(p);
  const Recipe recipe = recipe_of(p.quantize);
  const auto part = [&](size_t begin) { return static_cast<uint8_t*>(workspace) + begin; };
  QuantizeHeadsArguments a{};
  a.one_factor = recipe.descale == Descale::per_tensor;
  for (int column = 0; column < p.head_dim; ++column) {
    if (hadamard_sign(column) < 0) a.signs[column / 32] |= uint32_t{1} << column % 32;
  }

  a.launches = reinterpret_cast<unsigned*>(part(parts.counters));
  a.ended = a.launches + 1;

  a.amaxes = reinterpret_cast<unsigned*>(part(parts.amaxes));
  auto* descales = reinterpret_cast<float*>(part(parts.descales));
  const auto rounded = [&](const ConstTensorView& from, uint8_t* to, int which,
                           QuantizedTensor& tensor) {
    tensor = {.from = static_cast<const __nv_bfloat16*>(from.data),
              .batch_stride = from.batch_stride,
              .head_stride = from.head_stride,
              .row_stride = from.row_stride,
              .to = to,
              .descales = descales,
              .heads = static_cast<int>(from.heads),
              .rows = static_cast<int>(from.length),
              .row_blocks = static_cast<int>(row_blocks(from.length)),
              .blocks = static_cast<int>(parts.blocks[which])};
    a.blocks += tensor.blocks;
    descales += parts.factors[which];
    ConstTensorView view{to,
                         Dtype::e4m3,
                         from.batch,
                         from.heads,
                         from.length,
                         from.head_dim,
                         from.heads * from.length * from.head_dim,
                         from.length * from.head_dim,
                         from.head_dim};
    view.descales = {tensor.descales, a.one_factor ? 0 : from.heads, a.one_factor ? 0 : 1, 0};
    return view;
  };
  Inputs out = in;
  out.q = rounded(in.q, part(parts.q), 0, a.q);
  out.k = rounded(in.k, part(parts.k), 1, a.k);
  out.v = rounded(in.v, transposed_v, 2, a.v);

  if (at.part == RunPart::attention) return out;
  const Kernels by = kernels_of(p);
  if (is_at_once(p, at.device)) {
    a.q_map = tensor_map(in.q, kQuantizedRows);
    a.k_map = tensor_map(in.k, kQuantizedRows);
    a.v_map = tensor_map(in.v, kQuantizedRows);
    launch_kernel(by.heads, std::min<int64_t>(a.blocks, thread_blocks_at_once(p, at.device)), a,
                  stream, Start::together);
  } else {
    launch_kernel<QuantizeArguments>(by.amax, a.blocks, a, stream);
    launch_kernel<QuantizeArguments>(by.round, a.blocks, a, stream, Start::early);
  }
  return out;
}

}  // namespace flashbench::kernels::sm90
