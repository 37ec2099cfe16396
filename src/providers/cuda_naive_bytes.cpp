// Standard attention on bytes: cuBLASLt's products of e4m3, S in fp32 or bf16 and P in e4m3 in
// memory, one softmax kernel between them. Blocks of queries are computed one after the other in
// the same memory; keys after the last one that a query of the block sees are left out. P of a row
// is exp(S - maximum) times 2^8, and O is divided by the sum of the row and by 2^8 after its
// product, in fp32.
#include "providers/cuda_naive_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "device/cublas.h"
#include "kernels/naive/bytes.h"
#include "kernels/naive/softmax_cuda.h"
#include "providers/cublas_lt.h"

namespace flashbench {

namespace {

using kernels::BytesBlock;

static_assert(kNaiveBytesAccumulator.p_exponent == kernels::kBytesPExponent);

// The queries of a block: a quarter of all, within limits that keep products efficient and memory
// small.
constexpr int64_t kLeastQueries = 512, kMostQueries = 1024;
constexpr int64_t kQueryBlocks = 4;

// Addresses in the workspace are multiples of this.
constexpr int64_t kPartStep = 256;

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

std::vector<BytesBlock> bytes_blocks(const Problem& p) {
  const int64_t queries = std::clamp(p.q_len / kQueryBlocks, kLeastQueries, kMostQueries);
  std::vector<BytesBlock> blocks;
  for (int64_t first = 0; first < p.q_len; first += queries) {
    BytesBlock block;
    block.q_heads = p.q_heads;
    block.kv_heads = p.kv_heads;
    block.q_len = p.q_len;
    block.kv_len = p.kv_len;
    block.groups = p.batch * p.kv_heads;
    block.first = first;
    block.rows = std::min(queries, p.q_len - first);
    block.group_rows = round_up(p.heads_per_kv_head() * block.rows, kBytesStep);
    block.keys = round_up(p.visible_keys(first + block.rows - 1).end, kBytesStep);
    block.band = kernels::band(p);
    blocks.push_back(block);
  }
  return blocks;
}

// The matrices in the workspace: of all keys, and of the queries of a block. Sizes in elements.
class BytesMatrices {
 public:
  BytesMatrices(const Problem& p, Dtype scores)
      : columns(round_up(p.head_dim, kBytesStep)),
        value_columns(round_up(p.value_dim(), kBytesStep)),
        keys(round_up(p.kv_len, kBytesStep)),
        blocks(bytes_blocks(p)) {
    const int64_t groups = p.batch * p.kv_heads;
    int64_t rows = 0, pairs = 0;
    for (const BytesBlock& block : blocks) {
      rows = std::max(rows, groups * block.group_rows);
      pairs = std::max(pairs, groups * block.group_rows * block.keys);
    }
    constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
    const std::array bytes{groups * keys * columns,
                           groups * keys * value_columns,
                           rows * columns,
                           pairs * element_size(scores),
                           pairs,
                           rows * value_columns * kFloat,
                           rows * kFloat,
                           static_cast<int64_t>(kCublasWorkspaceBytes)};
    for (size_t i = 0; i < kParts; ++i) {
      begin_[i + 1] = begin_[i] + round_up(bytes[i], kPartStep);
    }
  }

  enum Part { kKeys, kTransposedValues, kQueries, kScores, kP, kProducts, kSums, kCublas, kParts };

  int64_t begin(Part part) const { return begin_[part]; }
  int64_t bytes() const { return begin_[kParts]; }

  const int64_t columns, value_columns, keys;  // padded
  const std::vector<BytesBlock> blocks;

 private:
  std::array<int64_t, kParts + 1> begin_{};
};

class NaiveBytesForward final : public Session {
 public:
  NaiveBytesForward(const Problem& p, Dtype scores, Device& device)
      : p_(p),
        scores_(scores),
        stream_(static_cast<cudaStream_t>(device.stream().cuda)),
        matrices_(p, scores),
        workspace_(device.allocate(static_cast<size_t>(matrices_.bytes()), MemoryUse::workspace)),
        cublas_(make_cublas_lt()) {
    for (const BytesBlock& block : matrices_.blocks) blocks_.push_back(planned(block));
  }

  void run(const Inputs& in, const Outputs& out) override {
    using enum BytesMatrices::Part;
    kernels::pack_keys(in.k, matrices_.keys, matrices_.columns, at(kKeys), stream_);
    kernels::transpose_values(in.v, matrices_.keys, matrices_.value_columns, at(kTransposedValues),
                              stream_);
    auto* const sums = static_cast<float*>(at(kSums));
    for (const PlannedBlock& planned : blocks_) {
      const BytesBlock& block = planned.block;
      if (planned.scores) {
        kernels::pack_queries(block, in.q, matrices_.columns, at(kQueries), stream_);
        planned.scores->multiply(at(kQueries), at(kKeys), at(kScores), at(kCublas), stream_);
      }
      kernels::softmax_of_bytes(block, static_cast<float>(p_.softmax_scale()), in.q.descales,
                                in.k.descales, at(kScores), scores_, at(kP), sums, out.logsumexp,
                                stream_);
      if (planned.output) {
        planned.output->multiply(at(kP), at(kTransposedValues), at(kProducts), at(kCublas),
                                 stream_);
      }
      kernels::finish_rows_of_bytes(block, in.v.descales, static_cast<float*>(at(kProducts)), sums,
                                    at(kP), at(kTransposedValues), matrices_.value_columns,
                                    matrices_.keys, out.o, stream_);
    }
  }

  std::string kernel() const override {
    return fmt::format("naive_forward cuBLASLt, scores in {}", name(scores_));
  }

  // Q, K and V read and written once; for each block the operands of both products, S, P and the
  // products of P and V, each written and read, and the sums; O and the logsumexp.
  std::optional<int64_t> requested_bytes() const override {
    constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
    const int64_t groups = p_.batch * p_.kv_heads;
    const int64_t wide = matrices_.columns + matrices_.value_columns;
    int64_t bytes = p_.query_elements() + p_.key_elements() + p_.value_elements() +
                    groups * matrices_.keys * wide +
                    p_.output_elements() * element_size(p_.output_dtype()) +
                    p_.query_rows() * kFloat;
    for (const BytesBlock& block : matrices_.blocks) {
      if (block.keys == 0) continue;
      bytes += groups * (2 * block.group_rows * matrices_.columns + block.keys * wide +
                         2 * block.group_rows * block.keys * (element_size(scores_) + 1) +
                         2 * block.group_rows * (matrices_.value_columns + 1) * kFloat);
    }
    return bytes;
  }

 private:
  // Without products if its queries see no key.
  struct PlannedBlock {
    BytesBlock block;
    std::optional<BytesProduct> scores, output;
  };

  PlannedBlock planned(const BytesBlock& block) const {
    PlannedBlock result{block, std::nullopt, std::nullopt};
    if (block.keys == 0) return result;
    const BytesGemm scores{.count = block.groups,
                           .rows = block.group_rows,
                           .columns = block.keys,
                           .depth = matrices_.columns,
                           .b_row_stride = matrices_.columns,
                           .b_step = matrices_.keys * matrices_.columns,
                           .c = scores_};
    const BytesGemm output{.count = block.groups,
                           .rows = block.group_rows,
                           .columns = matrices_.value_columns,
                           .depth = block.keys,
                           .b_row_stride = matrices_.keys,
                           .b_step = matrices_.value_columns * matrices_.keys,
                           .c = Dtype::fp32};
    result.scores.emplace(cublas_.get(), scores, kCublasWorkspaceBytes);
    result.output.emplace(cublas_.get(), output, kCublasWorkspaceBytes);
    return result;
  }

  void* at(BytesMatrices::Part part) const {
    return workspace_.as<std::byte>() + matrices_.begin(part);
  }

  const Problem p_;
  const Dtype scores_;
  const cudaStream_t stream_;
  const BytesMatrices matrices_;
  Buffer workspace_;
  CublasLtHandle<cublasLtHandle_t> cublas_;
  std::vector<PlannedBlock> blocks_;
};

}  // namespace

std::optional<std::string> why_no_naive_bytes(const Problem& p, const DeviceInfo& device) {
  if (p.descale == Descale::per_block) {
    return "one product cannot sum blocks of V with factors of their own";
  }
  if (device.compute_capability < 89) {
    return "cuBLASLt needs compute capability 8.9 or later for e4m3";
  }
  if (p.query_rows() > kernels::kMostScoreRows) {
    return fmt::format("its kernels take at most {} rows of scores", kernels::kMostScoreRows);
  }
  if (p.batch * p.kv_heads > kMostBytesProducts) {
    return fmt::format("it has at most {} products at once, one for each K/V head of each request",
                       kMostBytesProducts);
  }
  return why_no_cublas_lt();
}

int64_t naive_bytes_workspace(const Problem& p, Dtype scores) {
  return BytesMatrices(p, scores).bytes();
}

std::unique_ptr<Session> make_naive_bytes_session(const Problem& p, Dtype scores, Device& device) {
  return std::make_unique<NaiveBytesForward>(p, scores, device);
}

}  // namespace flashbench
