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

constexpr int kQ = 0, kK = 1, kV = 2;

// How the rows of each head are divided.
struct Blocks {
  int64_t of_head[3], of_tensor[3], count = 0;

  Blocks(const Problem& p, int rows) {
    const int64_t heads[] = {p.q_heads, p.kv_heads, p.kv_heads};
    const int64_t lengths[] = {p.q_len, p.kv_len, p.kv_len};
    const bool rotated = recipe_of(p.quantize).hadamard;
    const auto columns = quantized_columns(static_cast<int>(p.head_dim), rotated);
    for (const int i : {kQ, kK, kV}) {
      of_head[i] = (lengths[i] + rows - 1) / rows * (p.head_dim / columns);
      of_tensor[i] = p.batch * heads[i] * of_head[i];
      count += of_tensor[i];
    }
  }
};

// The parts of the workspace.
struct Parts {
  static constexpr size_t kAlignment = 256;

  size_t counters, amaxes, descales, q, k, bytes;
  int64_t factors[3];  // of Q, K and V

  explicit Parts(const Problem& p) {
    const Recipe recipe = recipe_of(p.quantize);
    const bool one = recipe.descale == Descale::per_tensor;
    factors[kQ] = one ? 1 : p.batch * p.q_heads;
    factors[kK] = factors[kV] = one ? 1 : p.batch * p.kv_heads;
    size_t end = 0;
    const auto take = [&](int64_t bytes_of_part) {
      const size_t begin = end;
      end += (static_cast<size_t>(bytes_of_part) + kAlignment - 1) / kAlignment * kAlignment;
      return begin;
    };
    counters = take(2 * sizeof(unsigned));
    amaxes = take(Blocks(p, kQuantizedRows).count * int64_t{sizeof(unsigned)});
    descales = take((factors[kQ] + factors[kK] + factors[kV]) * int64_t{sizeof(float)});
    q = take(p.batch * p.q_heads * p.q_len * p.head_dim);
    k = take(p.batch * p.kv_heads * p.kv_len * p.head_dim);
    bytes = end;
  }
};

// `heads` makes one launch of it; where it cannot, `amax` and `round` make two.
struct Kernels {
  CudaKernel<QuantizeArguments> amax, round;
  CudaKernel<QuantizeHeadsArguments> heads;
  // Of the one launch: rows of a block, thread blocks on a multiprocessor, blocks that each of
  // these reports before it waits for others, and heads that are best together.
  int rows, at_once, reported_first, together;
};

template <int kHeadDim, bool kRotated>
constexpr Kernels kernels() {
  constexpr int kThreads = quantizing_threads(quantized_columns(kHeadDim, kRotated));
  using Heads = QuantizeHeads<kHeadDim>;
  return {{"sm90_amax", amax_kernel<kHeadDim, kRotated>, kThreads},
          {"sm90_quantize", quantize_kernel<kHeadDim, kRotated>, kThreads},
          {"sm90_quantize_heads", quantize_heads_kernel<kHeadDim>, Heads::kThreads,
           sizeof(typename Heads::Shared)},
          Heads::kBlockRows,
          Heads::kAtOnce,
          Heads::kAhead + 1,
          Heads::kTogether};
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

// The launch that rounds each head by a factor of its own.
struct HeadsLaunch {
  Blocks blocks;
  int64_t thread_blocks;  // of which each has as many blocks as the others, or one more
  int64_t most_together;  // blocks, of heads that are together
  bool possible;

  HeadsLaunch(const Problem& p, const Kernels& by, const DeviceInfo& device) : blocks(p, by.rows) {
    const int64_t most = int64_t{device.threads} * by.at_once;
    const int64_t rounds = (blocks.count + most - 1) / most;
    thread_blocks = (blocks.count + rounds - 1) / rounds;
    most_together = thread_blocks * by.reported_first;
    const Recipe recipe = recipe_of(p.quantize);
    possible = recipe.descale == Descale::per_head && !recipe.hadamard &&
               std::ranges::max(blocks.of_head) <= most_together;
  }

  // How many heads of a tensor are together.
  int together(int which, int heads, const Kernels& by) const {
    const bool fit =
        heads % by.together == 0 && by.together * blocks.of_head[which] <= most_together;
    return fit ? by.together : 1;
  }
};

}  // namespace

bool is_quantized_head_dim(int64_t head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

size_t quantized_bytes(const Problem& p) {
  return Parts(p).bytes;
}

std::vector<KernelFacts> quantize_facts(const Problem& p, const DeviceInfo& device) {
  const Kernels by = kernels_of(p);
  if (HeadsLaunch(p, by, device).possible) return {kernel_facts(by.heads)};
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
  const Kernels by = kernels_of(p);
  const HeadsLaunch heads(p, by, at.device);
  const int block_rows = heads.possible ? by.rows : kQuantizedRows;
  const Blocks blocks(p, block_rows);
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
              .row_blocks = static_cast<int>((from.length + block_rows - 1) / block_rows),
              .blocks = static_cast<int>(blocks.of_tensor[which]),
              .heads_together = heads.together(which, static_cast<int>(from.heads), by)};
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
  out.q = rounded(in.q, part(parts.q), kQ, a.q);
  out.k = rounded(in.k, part(parts.k), kK, a.k);
  out.v = rounded(in.v, transposed_v, kV, a.v);

  if (at.part == RunPart::attention) return out;
  if (heads.possible) {
    a.q_map = tensor_map(in.q, block_rows);
    a.k_map = tensor_map(in.k, block_rows);
    a.v_map = tensor_map(in.v, block_rows);
    launch_kernel(by.heads, heads.thread_blocks, a, stream, Start::together);
  } else {
    launch_kernel<QuantizeArguments>(by.amax, a.blocks, a, stream);
    launch_kernel<QuantizeArguments>(by.round, a.blocks, a, stream, Start::early);
  }
  return out;
}

}  // namespace flashbench::kernels::sm90
