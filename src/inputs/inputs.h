// Input tensors on the host: filled by a distribution and a seed, or read from .npy files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/host_memory.h"
#include "attention/problem.h"
#include "attention/tensors.h"
#include "host/thread_pool.h"

namespace flashbench {

// What Q, K, V and dO are filled with.
//   normal    N(0, 1)
//   uniform   U[-1, 1): zero mean, because a mean hides errors (docs/problems.md)
//   outliers  N(0, 1) + Bernoulli(0.001) * N(0, 100): FlashAttention-3's outlier model
//             (arXiv 2407.08608, section 4.3)
//   mean_v    N(0, 1), V N(1, 1): sums over the keys grow with their number
//   channel_offsets   N(0, 1), K with 12 added in four columns: constant channels, as models have
//   files     .npy tensors
// and the adversarial distributions of inputs/patterns.h.
struct InputSpec {
  Distribution distribution = Distribution::normal;
  uint64_t seed = 1;
  std::string q{}, k{}, v{}, d_o{};  // paths, for files; d_o for the backward pass only

  std::string id() const;  // e.g. "normal/seed1"
  bool operator==(const InputSpec&) const = default;
};

// The tensors of one problem in host memory, in its dtype and layout; those of e4m3 are rounded,
// with factors: from fp32, or those of a K/V cache from the problem's dtype. Padding is poison, so
// that what is read from it shows; so are unused pages, and what is behind a request's end in its
// last page. Pages that requests share hold the values of the first of them.
class HostTensors {
 public:
  // Fills Q, K, V and, for the backward pass, dO. Of a backward problem, O and the logsumexp are
  // only allocated, and the caller fills them. Throws BadInput or FileError if a file does not fit
  // or cannot be read.
  HostTensors(const Problem&, const InputSpec&, ThreadPool&);

  Inputs inputs() const;
  // With K and V as they were before they were rounded for a K/V cache (Problem::kv_dtype); empty
  // for another problem, and for patterns, which rounding does not change.
  std::optional<Inputs> before_rounding() const;

  TensorView mutable_o();
  float* mutable_logsumexp() { return logsumexp_.data(); }

 private:
  Problem problem_;
  // Random tensors are shared with the next problem that needs the same.
  using Bytes = HostVector<std::byte>;
  std::shared_ptr<const Bytes> q_, k_, v_, d_o_;
  std::shared_ptr<const Bytes> k_before_, v_before_;  // of before_rounding()
  HostVector<float> q_descales_, k_descales_, v_descales_;
  Bytes o_;
  HostVector<float> logsumexp_;
  std::optional<BlockTable> table_;
};

// The shape of a tensor's .npy file: the order of its dimensions in memory.
std::vector<int64_t> shape_in(Layout, const ConstTensorView&);

}  // namespace flashbench
