// The references on a GPU, computed head by head in blocks of rows. The values are copied to the
// host as they become ready.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "verify/cuda_dtype.h"
#include "verify/cuda_exact.h"
#include "verify/cuda_naive.h"
#include "verify/references.h"

namespace flashbench::verify {

namespace {

// Stores rows of a dense fp64 matrix [rows, columns] in a tensor of dtype T with this row stride.
template <typename T>
__global__ void store_rows(const double* rows, int64_t elements, int64_t columns, T* to,
                           int64_t row_stride) {
  const int64_t i = blockIdx.x * int64_t{256} + threadIdx.x;
  if (i < elements) {
    to[i / columns * row_stride + i % columns] = T(static_cast<float>(rows[i]));
  }
}

__global__ void to_floats(const double* from, int64_t count, float* to) {
  const int64_t i = blockIdx.x * int64_t{256} + threadIdx.x;
  if (i < count) to[i] = static_cast<float>(from[i]);
}

// Rows of one head whose values are adjacent in the references.
struct Block {
  int64_t batch, head;
  std::vector<int64_t> rows;
  size_t first_row;  // in the references
};

// Merges the selection's blocks of each head into a few large ones.
std::vector<Block> large_blocks(const std::vector<RowBlock>& blocks) {
  std::vector<Block> large;
  size_t first_row = 0;
  for (const RowBlock& block : blocks) {
    if (large.empty() || large.back().batch != block.batch || large.back().head != block.head ||
        static_cast<int64_t>(large.back().rows.size() + block.rows.size()) > kMaxOwnRows) {
      large.push_back({block.batch, block.head, {}, first_row});
    }
    large.back().rows.insert(large.back().rows.end(), block.rows.begin(), block.rows.end());
    first_row += block.rows.size();
  }
  return large;
}

// All query rows of the heads of these blocks, or of the query heads that read these K/V heads.
std::vector<Block> whole_heads(const Problem& p,
                               const std::vector<std::pair<int64_t, int64_t>>& heads) {
  std::vector<Block> blocks;
  for (const auto& [batch, head] : heads) {
    const int64_t q_len = p.q_len_of(batch);
    for (int64_t first = 0; first < q_len; first += kMaxOwnRows) {
      std::vector<int64_t> rows(static_cast<size_t>(std::min(kMaxOwnRows, q_len - first)));
      std::iota(rows.begin(), rows.end(), first);
      blocks.push_back({batch, head, std::move(rows), 0});
    }
  }
  return blocks;
}

std::vector<Block> all_heads(const Problem& p) {
  std::vector<std::pair<int64_t, int64_t>> heads;
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    for (int64_t head = 0; head < p.q_heads; ++head) heads.push_back({batch, head});
  }
  return whole_heads(p, heads);
}

std::vector<Block> heads_that_read(const Problem& p, const std::vector<Block>& keys) {
  std::vector<std::pair<int64_t, int64_t>> heads;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i > 0 && keys[i].batch == keys[i - 1].batch && keys[i].head == keys[i - 1].head) continue;
    for (int64_t j = 0; j < p.heads_per_kv_head(); ++j) {
      heads.push_back({keys[i].batch, keys[i].head * p.heads_per_kv_head() + j});
    }
  }
  return whole_heads(p, heads);
}

// Copies to the host while the GPU computes: first into pinned memory, and from there by the host's
// threads, which spend most of the time on page faults of fresh memory.
class Downloads {
 public:
  Downloads(ThreadPool& pool, cudaStream_t stream) : pool_(pool), stream_(stream) {
    for (Slot& slot : slots_) {
      void* data = nullptr;
      FLASHBENCH_CUDA(cudaMallocHost(&data, kSlotBytes));
      slot.data.reset(static_cast<std::byte*>(data));
      cudaEvent_t event = nullptr;
      FLASHBENCH_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      slot.filled.reset(event);
    }
  }

  // Queues a copy of the data at `from`, read in stream order. It is at `to` after finish().
  void add(void* to, const void* from, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
      Slot& slot = slots_[current_];
      const size_t piece = std::min({bytes - done, kSlotBytes - slot.used, kPieceBytes});
      if (piece == 0) {
        turn();
        continue;
      }
      std::byte* between = slot.data.get() + slot.used;
      FLASHBENCH_CUDA(cudaMemcpyAsync(between, static_cast<const std::byte*>(from) + done, piece,
                                      cudaMemcpyDeviceToHost, stream_));
      slot.pieces.push_back({static_cast<std::byte*>(to) + done, between, piece});
      slot.used += piece;
      done += piece;
    }
  }

  void finish() {
    turn();
    turn();
  }

 private:
  static constexpr size_t kSlotBytes = size_t{64} << 20;
  static constexpr size_t kPieceBytes = size_t{1} << 20;  // per thread

  struct FreeHost {
    void operator()(std::byte* data) const { cudaFreeHost(data); }
  };
  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  struct Piece {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
  };
  struct Slot {
    std::unique_ptr<std::byte, FreeHost> data;
    std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent> filled;
    size_t used = 0;
    std::vector<Piece> pieces;
  };

  // Lets the GPU fill the current slot, and empties the other one.
  void turn() {
    FLASHBENCH_CUDA(cudaEventRecord(slots_[current_].filled.get(), stream_));
    current_ = 1 - current_;
    Slot& slot = slots_[current_];
    FLASHBENCH_CUDA(cudaEventSynchronize(slot.filled.get()));
    pool_.parallel_for(static_cast<int64_t>(slot.pieces.size()), [&](int64_t item, int) {
      const Piece& piece = slot.pieces[static_cast<size_t>(item)];
      std::memcpy(piece.to, piece.from, piece.bytes);
    });
    slot.pieces.clear();
    slot.used = 0;
  }

  ThreadPool& pool_;
  const cudaStream_t stream_;
  std::array<Slot, 2> slots_;
  size_t current_ = 0;
};

class GpuReferences {
 public:
  GpuReferences(const Problem&, const Inputs&, const Storage& storage, const Selection&,
                ThreadPool&, cudaStream_t);

  References forward();
  References backward();

 private:
  // Calls visit(block, rows) for each block; the row numbers are also on the device.
  template <typename Visit>
  void for_blocks(const std::vector<Block>& blocks, const Visit& visit) const;

  void download(const GpuValues&, const Block&, Reference&);
  ExactForward exact_forward();

  const Problem& problem_;
  const Selection& selection_;
  const cudaStream_t stream_;
  const GpuArray<std::byte> cublas_workspace_;
  const Cublas cublas_;
  const GpuInputs inputs_;
  ExactOnGpu exact_;
  NaiveOnGpu naive_;
  GpuStatistics statistics_;
  GpuValues first_, second_;  // values of a block
  Downloads downloads_;
};

int64_t longest(const Problem& p) {
  return std::min(kMaxOwnRows, std::max(p.q_len, p.kv_len));
}

GpuReferences::GpuReferences(const Problem& p, const Inputs& inputs, const Storage& storage,
                             const Selection& selection, ThreadPool& pool, cudaStream_t stream)
    : problem_(p),
      selection_(selection),
      stream_(stream),
      cublas_workspace_(static_cast<int64_t>(kCublasWorkspaceBytes)),
      cublas_(stream, cublas_workspace_.data(), kCublasWorkspaceBytes),
      inputs_(p, inputs, pool, stream),
      exact_(p, storage, inputs_, cublas_, stream),
      naive_(p, inputs_, exact_.tile(0), exact_.tile(1), cublas_, stream),
      statistics_(p.pass == Pass::backward ? p.query_rows() : 0),
      first_(longest(p), std::max(p.head_dim, p.value_dim())),
      second_(longest(p), std::max(p.head_dim, p.value_dim())),
      downloads_(pool, stream) {}

template <typename Visit>
void GpuReferences::for_blocks(const std::vector<Block>& blocks, const Visit& visit) const {
  for (const Block& block : blocks) {
    const int64_t first = block.rows.front(), count = static_cast<int64_t>(block.rows.size());
    GpuArray<int64_t> list;
    RowNumbers numbers{nullptr, first};
    if (block.rows.back() - first + 1 != count) {
      list = upload<int64_t>(block.rows, stream_);
      numbers.list = list.data();
    }
    visit(block, GpuRows{block.batch, block.head, block.rows, numbers});
  }
}

void GpuReferences::download(const GpuValues& from, const Block& block, Reference& to) {
  const auto elements = block.rows.size() * static_cast<size_t>(to.columns);
  const auto row = static_cast<int64_t>(block.first_row);
  downloads_.add(to.value.row(row), from.value.data(), elements * sizeof(double));
  downloads_.add(to.bound.row(row), from.bound.data(), elements * sizeof(float));
}

References GpuReferences::forward() {
  References result;
  result.tensors.emplace_back("o", problem_.dtype, problem_.value_dim(), selection_.queries);
  result.tensors.emplace_back("logsumexp", Dtype::fp32, 1, selection_.queries);
  Reference &o = result.tensors[0], &logsumexp = result.tensors[1];
  GpuError o_error(stream_), logsumexp_error(stream_);
  for_blocks(large_blocks(selection_.queries), [&](const Block& block, const GpuRows& queries) {
    exact_.forward(queries, true, first_, second_);
    naive_.forward(queries, first_.value.data(), second_.value.data(), o_error, logsumexp_error);
    download(first_, block, o);
    download(second_, block, logsumexp);
  });
  downloads_.finish();
  o.naive_max_abs = o_error.largest();
  logsumexp.naive_max_abs = logsumexp_error.largest();
  return result;
}

// Computes the forward pass of all rows, with the statistics that the gradients need.
ExactForward GpuReferences::exact_forward() {
  ExactForward result;
  result.o.resize(static_cast<size_t>(problem_.output_elements() * element_size(problem_.dtype)));
  result.logsumexp.resize(static_cast<size_t>(problem_.query_rows()));
  const GpuArray<std::byte> o(static_cast<int64_t>(result.o.size()));
  const GpuArray<float> logsumexp(problem_.query_rows());
  // NaN, which padding stays.
  FLASHBENCH_CUDA(cudaMemsetAsync(o.data(), 0xff, result.o.size(), stream_));
  FLASHBENCH_CUDA(cudaMemsetAsync(statistics_.logsumexp.data(), 0xff,
                                  result.logsumexp.size() * sizeof(double), stream_));
  const TensorView view = output_view<void>(o.data(), problem_);
  for_blocks(all_heads(problem_), [&](const Block& block, const GpuRows& queries) {
    exact_.forward(queries, false, first_, second_);
    exact_.statistics(queries, first_.value.data(), second_.value.data(), statistics_);
    with_type(problem_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const int64_t elements = queries.count() * problem_.value_dim();
      store_rows<<<blocks_of_256(elements), 256, 0, stream_>>>(
          first_.value.data(), elements, problem_.value_dim(),
          static_cast<T*>(view.data) + view.offset(block.batch, block.head, block.rows.front()),
          view.row_stride);
    });
    FLASHBENCH_CUDA(cudaGetLastError());
  });
  to_floats<<<blocks_of_256(problem_.query_rows()), 256, 0, stream_>>>(
      statistics_.logsumexp.data(), problem_.query_rows(), logsumexp.data());
  FLASHBENCH_CUDA(cudaGetLastError());
  downloads_.add(result.o.data(), o.data(), result.o.size());
  downloads_.add(result.logsumexp.data(), logsumexp.data(),
                 result.logsumexp.size() * sizeof(float));
  downloads_.finish();
  return result;
}

References GpuReferences::backward() {
  References result;
  result.forward = exact_forward();
  result.tensors.emplace_back("dq", problem_.dtype, problem_.head_dim, selection_.queries);
  result.tensors.emplace_back("dk", problem_.dtype, problem_.head_dim, selection_.keys);
  result.tensors.emplace_back("dv", problem_.dtype, problem_.value_dim(), selection_.keys);
  Reference &dq = result.tensors[0], &dk = result.tensors[1], &dv = result.tensors[2];
  GpuError dq_error(stream_), dk_error(stream_), dv_error(stream_);

  const std::vector<Block> key_blocks = large_blocks(selection_.keys);
  for_blocks(heads_that_read(problem_, key_blocks),
             [&](const Block&, const GpuRows& queries) { naive_.statistics(queries); });
  for_blocks(large_blocks(selection_.queries), [&](const Block& block, const GpuRows& queries) {
    exact_.query_gradients(queries, statistics_, first_);
    naive_.query_gradients(queries, first_.value.data(), dq_error);
    download(first_, block, dq);
  });
  for_blocks(key_blocks, [&](const Block& block, const GpuRows& keys) {
    exact_.key_gradients(keys, statistics_, first_, second_);
    naive_.key_gradients(keys, first_.value.data(), second_.value.data(), dk_error, dv_error);
    download(first_, block, dk);
    download(second_, block, dv);
  });
  downloads_.finish();
  dq.naive_max_abs = dq_error.largest();
  dk.naive_max_abs = dk_error.largest();
  dv.naive_max_abs = dv_error.largest();
  return result;
}

}  // namespace

References references_on_gpu(const Problem& p, const Inputs& inputs, const Storage& storage,
                             const Selection& selection, Device& device) {
  GpuReferences gpu(p, inputs, storage, selection, *device.stream().threads,
                    static_cast<cudaStream_t>(device.stream().cuda));
  return p.pass == Pass::forward ? gpu.forward() : gpu.backward();
}

bool better_on_gpu(const Problem& p, const Selection& selection, Device& device) {
  // Rough figures: the fp64 rate of a host thread, and the time that a GPU needs to launch the work
  // of a head.
  constexpr double kHostFlopsOfThread = 2e10, kGpuSecondsOfHead = 3e-4, kGpuSecondsToBegin = 0.01;
  double pairs = 0, heads = 0;
  for (const std::vector<RowBlock>* blocks : {&selection.queries, &selection.keys}) {
    for (const Block& block : large_blocks(*blocks)) {
      const int64_t other =
          blocks == &selection.queries ? p.kv_len_of(block.batch) : p.q_len_of(block.batch);
      pairs += static_cast<double>(block.rows.size()) * static_cast<double>(other);
      heads += 1;
    }
  }
  constexpr double kGemms = 6;  // approximately, per row of dQ, dK, dV or O
  double gemm_pairs = kGemms * pairs;
  if (p.pass == Pass::backward) {  // the backward pass begins with the forward pass of all rows
    gemm_pairs += 2 * p.sum_of_requests([](const Problem& request) {
      return static_cast<double>(request.query_rows()) * static_cast<double>(request.kv_len);
    });
    heads += static_cast<double>(all_heads(p).size());
  }
  const double host_seconds = static_cast<double>(p.head_dim + p.value_dim()) * gemm_pairs /
                              (kHostFlopsOfThread * device.stream().threads->threads());
  if (host_seconds < kGpuSecondsToBegin + kGpuSecondsOfHead * heads) return false;

  size_t free = 0, total = 0;
  FLASHBENCH_CUDA(cudaMemGetInfo(&free, &total));
  constexpr double kWorkspace = 2.0 * (int64_t{1} << 30);
  const Problem held = on_gpu(p);
  const double inputs = static_cast<double>(element_size(p.dtype)) *
                        static_cast<double>(p.query_elements() + 2 * p.output_elements() +
                                            held.key_elements() + held.value_elements());
  const double statistics = 48.0 * static_cast<double>(p.query_rows());
  return kWorkspace + inputs + statistics < static_cast<double>(free);
}

}  // namespace flashbench::verify
