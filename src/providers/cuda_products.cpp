#include "providers/cuda_products.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>

#include "kernels/naive/addresses.h"
#include "kernels/naive/softmax_cuda.h"

namespace flashbench {

namespace {

constexpr int64_t kAlignment = 16;  // bytes; cuBLAS assumes it for addresses in arrays

int64_t table_bytes(int64_t batch, int64_t heads) {
  return 3 * batch * heads * static_cast<int64_t>(sizeof(void*));
}

// The constant step between successive matrices over all batches, if there is one.
std::optional<int64_t> single_step(const HeadMatrices& m, int64_t batch, int64_t heads) {
  if (batch == 1 && m.sharers >= heads) return 0;
  if (heads == 1) return m.batch_stride;
  if (m.sharers != 1) return std::nullopt;
  if (batch == 1 || m.batch_stride == heads * m.head_stride) return m.head_stride;
  return std::nullopt;
}

bool aligned(const HeadMatrices& m) {
  const auto multiple = [&](int64_t elements) {
    return elements * element_size(m.dtype) % kAlignment == 0;
  };
  return reinterpret_cast<uintptr_t>(m.data) % kAlignment == 0 && multiple(m.batch_stride) &&
         multiple(m.head_stride) && multiple(m.row_stride);
}

HeadMatrices moved(HeadMatrices m, int64_t elements) {
  m.data = static_cast<const std::byte*>(m.data) + elements * element_size(m.dtype);
  return m;
}

DeviceMatrix first_matrix(const HeadMatrices& m) {
  return {m.data, m.dtype, m.row_stride};
}

kernels::HeadAddresses head_addresses(const HeadMatrices& m) {
  const int64_t bytes = element_size(m.dtype);
  return {m.data, m.batch_stride * bytes, m.head_stride * bytes, m.sharers};
}

}  // namespace

std::optional<std::string> why_no_products_of_scores(const Problem& p, const DeviceInfo& device) {
  if (p.dtype == Dtype::bf16 && device.compute_capability < 80) {
    return "cuBLAS needs compute capability 8.0 or later for bf16";
  }
  if (p.query_rows() > kernels::kMostScoreRows) {
    return fmt::format("its kernels take at most {} rows of scores", kernels::kMostScoreRows);
  }
  return std::nullopt;
}

HeadMatrices HeadMatrices::from(int64_t row, int64_t column) const {
  return moved(*this, row * row_stride + column);
}

HeadMatrices HeadMatrices::heads(int64_t first, int64_t step) const {
  HeadMatrices some = moved(*this, first * head_stride);
  some.head_stride *= step;
  return some;
}

HeadMatrices HeadMatrices::shared_by(int64_t heads) const {
  HeadMatrices shared = *this;
  shared.sharers = heads;
  return shared;
}

HeadMatrices head_matrices(const ConstTensorView& t) {
  return {t.data, t.dtype, t.batch_stride, t.head_stride, t.row_stride};
}

HeadProducts::HeadProducts(Device& device, int64_t batch, int64_t heads)
    : stream_(device.stream().cuda),
      batch_(batch),
      workspace_(device.allocate(kCublasWorkspaceBytes, MemoryUse::workspace)),
      addresses_(
          device.allocate(static_cast<size_t>(table_bytes(batch, heads)), MemoryUse::workspace)),
      cublas_(stream_, workspace_.data(), workspace_.bytes()) {}

int64_t HeadProducts::workspace_bytes(int64_t batch, int64_t heads) {
  return static_cast<int64_t>(kCublasWorkspaceBytes) + table_bytes(batch, heads);
}

void HeadProducts::multiply(Gemm gemm, int64_t heads, const HeadMatrices& a, const HeadMatrices& b,
                            const HeadMatrices& c) {
  gemm.a = first_matrix(a);
  gemm.b = first_matrix(b);
  gemm.c = first_matrix(c);
  const auto a_step = single_step(a, batch_, heads), b_step = single_step(b, batch_, heads),
             c_step = single_step(c, batch_, heads);
  if (a_step && b_step && c_step) {
    return cublas_.multiply_strided(gemm, batch_ * heads, *a_step, *b_step, *c_step);
  }
  if (aligned(a) && aligned(b) && aligned(c)) {
    const auto table = addresses_.as<const void*>();
    const int64_t count = batch_ * heads;
    kernels::write_head_addresses(head_addresses(a), head_addresses(b), head_addresses(c), batch_,
                                  heads, table, static_cast<cudaStream_t>(stream_));
    return cublas_.multiply_at(gemm, count, table, table + count,
                               const_cast<void* const*>(table + 2 * count));
  }
  // Multiply head by head, so that cuBLAS can see which addresses are not aligned.
  for (int64_t h = 0; h < heads; ++h) {
    gemm.a = first_matrix(moved(a, h / a.sharers * a.head_stride));
    gemm.b = first_matrix(moved(b, h / b.sharers * b.head_stride));
    gemm.c = first_matrix(moved(c, h / c.sharers * c.head_stride));
    cublas_.multiply_strided(gemm, batch_, a.batch_stride, b.batch_stride, c.batch_stride);
  }
}

}  // namespace flashbench
