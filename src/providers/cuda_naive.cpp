// Standard attention on a GPU: batched cuBLAS GEMMs for all products, S and P [batch, q_heads,
// q_len, kv_len] in memory, one softmax kernel between them. Causal problems are divided into
// blocks of rows: keys after the last one that a row of the block sees are neither multiplied nor
// read or written. Keys before a window are only masked. Requests of different lengths are computed
// one after the other, each by launches of its own, which the host makes from their lengths. Paged
// K and V are first copied out of their pages. Bytes have steps of their own (cuda_naive_bytes.h).
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "attention/pages.h"
#include "kernels/naive/gather_pages.h"
#include "kernels/naive/softmax_cuda.h"
#include "providers/cuda_naive_bytes.h"
#include "providers/cuda_products.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

using kernels::ScoreBlock;

// The rows of a causal block: a quarter of all, within limits that keep products efficient and skip
// much.
constexpr int64_t kMinBlockRows = 512, kMaxBlockRows = 1024;
constexpr int64_t kBlocks = 4;
// Blocks of keys start at multiples of this, so that their addresses are aligned.
constexpr int64_t kKeyStep = 64;

// Rows that see no key from `keys` on. The first row that sees any key from `first_key` on.
struct RowBlock {
  int64_t first, rows;
  int64_t first_key, keys;
};

std::vector<RowBlock> row_blocks(const Problem& p) {
  if (p.q_len == 0) return {};
  if (p.visible_keys(0).end == p.kv_len) return {{0, p.q_len, 0, p.kv_len}};
  const int64_t seen = p.visible_keys(p.q_len - 1).end;
  std::vector<RowBlock> blocks;
  int64_t first_key = 0;
  const int64_t block_rows = std::clamp(p.q_len / kBlocks, kMinBlockRows, kMaxBlockRows);
  for (int64_t first = 0; first < p.q_len; first += block_rows) {
    const int64_t rows = std::min(block_rows, p.q_len - first);
    const int64_t visible = p.visible_keys(first + rows - 1).end;
    const int64_t keys = std::min(seen, (visible + kKeyStep - 1) / kKeyStep * kKeyStep);
    blocks.push_back({first, rows, first_key, keys});
    first_key = keys;
  }
  return blocks;
}

// The problems that are computed at once, without pages: the whole one, or each request of
// different lengths.
std::vector<Problem> parts_of(const Problem& p) {
  if (!p.lengths) return {without_pages(p)};
  std::vector<Problem> parts;
  for (int64_t b = 0; b < p.batch; ++b) parts.push_back(p.request(b));
  return parts;
}

// The most requests that are computed at once.
int64_t batch_at_once(const Problem& p) {
  return p.lengths ? 1 : p.batch;
}

// The steps of a part that both passes share.
class CudaNaiveSteps {
 public:
  CudaNaiveSteps(const Problem& part, Dtype scores, cudaStream_t on, HeadProducts& products)
      : p(part),
        scores_dtype(scores),
        stream(on),
        blocks(row_blocks(part)),
        all(ScoreBlock::whole(part, scores)),
        products_(products) {}

  ScoreBlock rows_of(const RowBlock& block) const {
    ScoreBlock rows = all;
    rows.first = block.first;
    rows.rows = block.rows;
    rows.keys = block.keys;
    return rows;
  }

  // The [q_len, kv_len] matrices of the heads in a workspace.
  HeadMatrices matrices(const void* scores, Dtype dtype) const {
    return {scores, dtype, p.q_heads * all.head_stride, all.head_stride, all.row_stride};
  }

  // scores = alpha * A B^T for one block. A has the shape of Q, B that of K.
  void multiply_transposed(const RowBlock& block, double alpha, const ConstTensorView& a,
                           const ConstTensorView& b, const HeadMatrices& scores) {
    if (block.keys == 0) return;
    Gemm gemm;
    gemm.transpose_b = true;
    gemm.rows = block.rows;
    gemm.columns = block.keys;
    gemm.depth = a.head_dim;
    gemm.alpha = alpha;
    products_.multiply(gemm, p.q_heads, head_matrices(a).from(block.first),
                       head_matrices(b).shared_by(p.heads_per_kv_head()), scores.from(block.first));
  }

  // C = alpha * scores B for one block. B has the shape of K, C that of Q.
  void multiply(const RowBlock& block, double alpha, const HeadMatrices& scores,
                const ConstTensorView& b, const TensorView& c) {
    if (block.keys == 0) return kernels::naive_zero_rows(c, block.first, block.rows, stream);
    Gemm gemm;
    gemm.rows = block.rows;
    gemm.columns = c.head_dim;
    gemm.depth = block.keys;
    gemm.alpha = alpha;
    products_.multiply(gemm, p.q_heads, scores.from(block.first),
                       head_matrices(b).shared_by(p.heads_per_kv_head()),
                       head_matrices(c).from(block.first));
  }

  // C = alpha * scores^T B, summed over the query heads of each K/V head, for the keys that no row
  // before the block sees. B has the shape of Q, C that of K. The rows of later blocks see these
  // keys too.
  void multiply_scores_transposed(const RowBlock& block, double alpha, const HeadMatrices& scores,
                                  const ConstTensorView& b, const HeadMatrices& c) {
    if (block.keys == block.first_key) return;
    const int64_t group = p.heads_per_kv_head();
    Gemm gemm;
    gemm.transpose_a = true;
    gemm.rows = block.keys - block.first_key;
    gemm.columns = b.head_dim;
    gemm.depth = p.q_len - block.first;
    gemm.alpha = alpha;
    for (int64_t i = 0; i < group; ++i) {
      gemm.beta = i == 0 ? 0 : 1;
      products_.multiply(
          gemm, p.kv_heads, scores.from(block.first, block.first_key).heads(i, group),
          head_matrices(b).from(block.first).heads(i, group), c.from(block.first_key));
    }
  }

  // Bytes of the operands of one product over all blocks, each counted once.
  int64_t product_bytes(Dtype scores, int64_t head_dim) const {
    int64_t elements = 0, pairs = 0;
    for (const RowBlock& block : blocks) {
      elements += (block.rows * p.q_heads + block.keys * p.kv_heads) * head_dim;
      pairs += block.rows * block.keys;
    }
    return p.batch * (elements * element_size(p.dtype) + p.q_heads * pairs * element_size(scores));
  }
  // Bytes of the scores of all blocks.
  int64_t score_bytes(Dtype scores) const {
    int64_t pairs = 0;
    for (const RowBlock& block : blocks) pairs += block.rows * block.keys;
    return p.batch * p.q_heads * pairs * element_size(scores);
  }

  const Problem p;
  const Dtype scores_dtype;
  const cudaStream_t stream;
  const std::vector<RowBlock> blocks;
  const ScoreBlock all;

 private:
  HeadProducts& products_;
};

// What a part of a problem needs of the workspace, in bytes, each a multiple of 256.
struct Sizes {
  Sizes() = default;
  // `gathers`: K and V are copied out of pages.
  Sizes(const Problem& p, Dtype scores_dtype, bool gathers = false) {
    const auto padded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
    const ScoreBlock all = ScoreBlock::whole(p, scores_dtype);
    const int64_t elements = all.heads * all.head_stride;
    probabilities = padded(elements * element_size(p.dtype));
    // S is turned into P, and dP into dS; in place if both have the same dtype.
    scores = scores_dtype == p.dtype ? 0 : padded(elements * element_size(scores_dtype));
    rows = padded(p.query_rows() * static_cast<int64_t>(sizeof(float)));
    const bool summed_in_memory = p.heads_per_kv_head() > 1 && p.dtype != Dtype::fp32;
    const auto sums = [&](int64_t of_tensor) {
      return summed_in_memory ? padded(of_tensor * static_cast<int64_t>(sizeof(float))) : 0;
    };
    dk_sums = sums(p.key_elements());
    dv_sums = sums(p.value_elements());
    if (!gathers) return;
    keys = padded(p.key_elements() * element_size(p.dtype));
    values = padded(p.value_elements() * element_size(p.dtype));
  }

  int64_t probabilities = 0, scores = 0, rows = 0, dk_sums = 0, dv_sums = 0, keys = 0, values = 0;

  int64_t key_sums() const { return std::max(dk_sums, dv_sums); }  // one after the other
};

// The workspace: its parts are the largest that any part of the problem needs, because those run
// one after the other. But the backward pass keeps the P of all.
struct WorkspaceSizes : Sizes {
  WorkspaceSizes(const Problem& whole, Dtype scores_dtype) {
    for (const Problem& part : parts_of(whole)) {
      const Sizes size(part, scores_dtype, whole.is_paged());
      all_probabilities += size.probabilities;
      for (int64_t Sizes::*member :
           {&Sizes::probabilities, &Sizes::scores, &Sizes::rows, &Sizes::dk_sums, &Sizes::dv_sums,
            &Sizes::keys, &Sizes::values}) {
        this->*member = std::max(this->*member, size.*member);
      }
    }
  }

  int64_t all_probabilities = 0;

  int64_t forward() const { return probabilities + scores + keys + values; }
  int64_t backward() const {
    return all_probabilities + probabilities + scores + rows + key_sums();
  }
};

// What the sessions of both passes share.
class NaiveSession : public Session {
 public:
  NaiveSession(const Problem& p, Dtype scores_dtype, Device& device)
      : p_(p), scores_dtype_(scores_dtype), products_(device, batch_at_once(p), p.q_heads) {
    for (const Problem& part : parts_of(p)) {
      parts_.emplace_back(part, scores_dtype, static_cast<cudaStream_t>(device.stream().cuda),
                          products_);
    }
  }

  std::string kernel() const override {
    return fmt::format("naive_{} cuBLAS, scores in {}{}{}", name(p_.pass), name(scores_dtype_),
                       p_.is_paged() ? ", K and V copied from their pages" : "",
                       p_.lengths ? ", request by request" : "");
  }

  std::optional<int64_t> requested_bytes() const override {
    int64_t bytes = 0;
    for (const CudaNaiveSteps& part : parts_) bytes += requested_bytes_of(part);
    return bytes;
  }

 protected:
  virtual int64_t requested_bytes_of(const CudaNaiveSteps& part) const = 0;

  // The tensors of part i.
  Inputs part_of(const Inputs& in, size_t i) const {
    return p_.lengths ? request_inputs(p_, in, static_cast<int64_t>(i)) : in;
  }
  Outputs part_of(const Outputs& out, size_t i) const {
    return p_.lengths ? request_outputs(p_, out, static_cast<int64_t>(i)) : out;
  }

  const Problem p_;
  const Dtype scores_dtype_;
  HeadProducts products_;
  std::vector<CudaNaiveSteps> parts_;
};

class NaiveForward final : public NaiveSession {
 public:
  NaiveForward(const Problem& p, Dtype scores_dtype, Device& device)
      : NaiveSession(p, scores_dtype, device) {
    const WorkspaceSizes size(p, scores_dtype);
    workspace_ = device.allocate(static_cast<size_t>(size.forward()), MemoryUse::workspace);
    probabilities_ = workspace_.as<std::byte>();
    scores_ = size.scores == 0 ? probabilities_ : probabilities_ + size.probabilities;
    keys_ = probabilities_ + size.probabilities + size.scores;
    values_ = keys_ + size.keys;
  }

  void run(const Inputs& in, const Outputs& out) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      Inputs own = part_of(in, i);
      own.k = out_of_pages(parts_[i], own.k, keys_);
      own.v = out_of_pages(parts_[i], own.v, values_);
      run_steps(parts_[i], own, part_of(out, i));
    }
  }

 private:
  void run_steps(CudaNaiveSteps& part, const Inputs& in, const Outputs& out) {
    const Problem& p = part.p;
    const HeadMatrices scores = part.matrices(scores_, part.scores_dtype);
    const HeadMatrices probabilities = part.matrices(probabilities_, p.dtype);
    for (const RowBlock& block : part.blocks) {
      part.multiply_transposed(block, p.softmax_scale() / part.all.unit, in.q, in.k, scores);
      ScoreBlock rows = part.rows_of(block);
      rows.statistic_stride = logsumexp_view<void>(nullptr, p_).head_stride;
      kernels::naive_softmax(rows, scores_, part.scores_dtype, probabilities_, p.dtype,
                             out.logsumexp, part.stream);
      part.multiply(block, 1, probabilities, in.v, out.o);
    }
    if (p.is_masked()) {
      kernels::naive_redo_rows(part.all, 1, probabilities_, p.dtype, in.v, out.o, part.stream);
    }
  }

  // K or V of a part without pages, copied to `room` if they have some.
  static ConstTensorView out_of_pages(const CudaNaiveSteps& part, const ConstTensorView& t,
                                      std::byte* room) {
    if (!t.is_paged()) return t;
    const Problem& p = part.p;
    const TensorView copy =
        dense_view<void>(room, t.dtype, Layout::bhsd, p.batch, p.kv_heads, p.kv_len, t.head_dim);
    kernels::gather_pages(t, copy, part.stream);
    return copy;
  }

  // The operands of both products; S read and P written by the softmax; L; and O, checked for
  // values that are not finite. Of pages also the copies, and a table entry for each of their rows.
  int64_t requested_bytes_of(const CudaNaiveSteps& part) const override {
    const Problem& p = part.p;
    const int64_t rows = p.query_rows() * static_cast<int64_t>(sizeof(float));
    const int64_t looked_at = !p.is_masked() ? 0 : p.output_elements() * element_size(p.dtype);
    return part.product_bytes(part.scores_dtype, p.head_dim) +
           part.product_bytes(p.dtype, p.value_dim()) + part.score_bytes(part.scores_dtype) +
           part.score_bytes(p.dtype) + rows + looked_at + (p_.is_paged() ? copied_bytes(p) : 0);
  }
  static int64_t copied_bytes(const Problem& p) {
    const int64_t elements = p.key_elements() + p.value_elements();
    return 2 * elements * element_size(p.dtype) +
           2 * p.key_rows() * static_cast<int64_t>(sizeof(int32_t));
  }

  Buffer workspace_;
  std::byte *probabilities_, *scores_, *keys_, *values_;
};

class NaiveBackward final : public NaiveSession {
 public:
  NaiveBackward(const Problem& p, Dtype scores_dtype, Device& device)
      : NaiveSession(p, scores_dtype, device) {
    const WorkspaceSizes size(p, scores_dtype);
    workspace_ = device.allocate(static_cast<size_t>(size.backward()), MemoryUse::workspace);
    auto* probabilities = workspace_.as<std::byte>();
    for (const CudaNaiveSteps& part : parts_) {
      probabilities_.push_back(probabilities);
      probabilities += Sizes(part.p, scores_dtype).probabilities;
    }
    gradients_ = probabilities;
    scores_ = size.scores == 0 ? gradients_ : gradients_ + size.probabilities;
    delta_ = reinterpret_cast<float*>(gradients_ + size.probabilities + size.scores);
    key_sums_ = size.key_sums() == 0 ? nullptr : delta_ + size.rows / sizeof(float);
  }

  void prepare_inputs(const Inputs& inputs) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Inputs in = part_of(inputs, i);
      CudaNaiveSteps& part = parts_[i];
      const HeadMatrices scores = part.matrices(scores_, part.scores_dtype);
      for (const RowBlock& block : part.blocks) {
        part.multiply_transposed(block, part.p.softmax_scale() / part.all.unit, in.q, in.k, scores);
        kernels::naive_softmax(part.rows_of(block), scores_, part.scores_dtype, probabilities_[i],
                               p_.dtype, delta_ /* a logsumexp that nobody reads */, part.stream);
      }
    }
  }

  void run(const Inputs& in, const Outputs& out) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      run_steps(parts_[i], probabilities_[i], part_of(in, i), part_of(out, i));
    }
  }

 private:
  void run_steps(CudaNaiveSteps& part, const std::byte* p_data, const Inputs& in,
                 const Outputs& out) {
    const Problem& p = part.p;
    const HeadMatrices probabilities = part.matrices(p_data, p.dtype);
    const HeadMatrices dp = part.matrices(scores_, part.scores_dtype);
    const HeadMatrices ds = part.matrices(gradients_, p.dtype);
    sum_over_rows(part, 1, probabilities, in.d_o, out.dv);
    kernels::naive_row_dots(in.o, in.d_o, delta_, part.stream);
    for (const RowBlock& block : part.blocks) {
      part.multiply_transposed(block, 1, in.d_o, in.v, dp);
      kernels::naive_softmax_gradient(part.rows_of(block), p_data, scores_, part.scores_dtype,
                                      gradients_, p.dtype, delta_, part.stream);
      part.multiply(block, p.softmax_scale(), ds, in.k, out.dq);
    }
    sum_over_rows(part, p.softmax_scale(), ds, in.q, out.dk);
    if (p.is_masked()) {
      kernels::naive_redo_rows(part.all, p.softmax_scale(), gradients_, p.dtype, in.k, out.dq,
                               part.stream);
    }
  }

  // The operands of five products; P and dP read and dS written between them; O and dO for D, which
  // is written and read; dQ, checked for values that are not finite; and the sums over a group's
  // heads.
  int64_t requested_bytes_of(const CudaNaiveSteps& part) const override {
    const Problem& p = part.p;
    const int64_t query_bytes = p.query_elements() * element_size(p.dtype);
    const int64_t output_bytes = p.output_elements() * element_size(p.dtype);
    const int64_t rows = p.query_rows() * static_cast<int64_t>(sizeof(float));
    const Sizes size(p, part.scores_dtype);
    return part.product_bytes(p.dtype, p.value_dim()) +
           2 * part.product_bytes(p.dtype, p.head_dim) +
           part.product_bytes(part.scores_dtype, p.value_dim()) + 2 * part.score_bytes(p.dtype) +
           part.score_bytes(part.scores_dtype) + 2 * output_bytes + 2 * rows +
           (p.is_masked() ? query_bytes : 0) +
           (2 * p.heads_per_kv_head() - 1) * (size.dk_sums + size.dv_sums);
  }

  // dV or dK. In 16 bits they are rounded once: sums over a group's heads are kept in fp32.
  void sum_over_rows(CudaNaiveSteps& part, double alpha, const HeadMatrices& scores,
                     const ConstTensorView& b, const TensorView& c) {
    const Problem& p = part.p;
    const TensorView sums = key_sums_ == nullptr
                                ? c
                                : dense_view<void>(key_sums_, Dtype::fp32, Layout::bhsd, p.batch,
                                                   p.kv_heads, p.kv_len, c.head_dim);
    for (const RowBlock& block : part.blocks) {
      part.multiply_scores_transposed(block, alpha, scores, b, head_matrices(sums));
    }
    if (key_sums_ != nullptr) kernels::naive_from_fp32(key_sums_, c, part.stream);
    const int64_t seen = part.blocks.empty() ? 0 : part.blocks.back().keys;
    kernels::naive_zero_rows(c, seen, p.kv_len - seen, part.stream);
  }

  Buffer workspace_;
  std::vector<std::byte*> probabilities_;  // of each part
  std::byte *gradients_, *scores_;
  float *delta_, *key_sums_;
};

class CudaNaiveProvider final : public Provider {
 public:
  explicit CudaNaiveProvider(CudaNaiveScores scores) : scores_(scores) {}

  std::string_view name() const override {
    return scores_ == CudaNaiveScores::own_dtype ? "naive" : "naive:fp32";
  }
  std::string_view description() const override {
    return scores_ == CudaNaiveScores::own_dtype
               ? "standard attention: cuBLAS products, S and P in memory in the problem's dtype; "
                 "S of bytes in bf16"
               : "standard attention: cuBLAS products, S in memory in fp32, P in the problem's "
                 "dtype";
  }
  DeviceKind device_kind() const override { return DeviceKind::cuda; }
  bool on_request_only() const override { return scores_ == CudaNaiveScores::fp32; }
  std::vector<Dtype> dtypes() const override { return {kDtypes.begin(), kDtypes.end()}; }
  std::vector<std::string_view> optional_axes() const override {
    std::vector<std::string_view> axes = kEveryOptionalAxis;
    axes.emplace_back("descale");
    return axes;
  }
  Dtype scores_dtype(const Problem& p) const override {
    return scores_ == CudaNaiveScores::own_dtype ? p.output_dtype() : Dtype::fp32;
  }
  Accumulator accumulator(const Problem& p) const override {
    return p.is_scaled() ? kNaiveBytesAccumulator : Accumulator{};
  }

  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& device) const override {
    return p.is_scaled() ? why_no_naive_bytes(p, device) : why_no_products_of_scores(p, device);
  }
  int64_t workspace_bytes(const Problem& p, const DeviceInfo&) const override {
    if (p.is_scaled()) return naive_bytes_workspace(p, scores_dtype(p));
    const WorkspaceSizes size(p, scores_dtype(p));
    return HeadProducts::workspace_bytes(batch_at_once(p), p.q_heads) +
           (p.pass == Pass::forward ? size.forward() : size.backward());
  }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    if (p.is_scaled()) return make_naive_bytes_session(p, scores_dtype(p), device);
    if (p.pass == Pass::forward) {
      return std::make_unique<NaiveForward>(p, scores_dtype(p), device);
    }
    return std::make_unique<NaiveBackward>(p, scores_dtype(p), device);
  }

 private:
  CudaNaiveScores scores_;
};

}  // namespace

std::unique_ptr<Provider> make_cuda_naive_provider(CudaNaiveScores scores) {
  return std::make_unique<CudaNaiveProvider>(scores);
}

}  // namespace flashbench
