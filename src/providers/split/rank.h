// What the algorithms of several devices do on one of them: pull rows from the others, run kernels
// on blocks of queries and keys, merge.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/tensors.h"
#include "attention/token_split.h"
#include "device/device_group.h"
#include "device/nccl_ranks.h"
#include "device/step_board.h"
#include "kernels/attention.h"
#include "providers/provider.h"
#include "providers/split/merge.h"
#include "providers/split/row_work.h"

namespace flashbench {

// What an algorithm is made of. Tests plant defects in its parts.
struct SplitParts {
  const kernels::AttentionKernel* kernel = nullptr;  // of one device, for the pass
  kernels::Fp32Outputs fp32_outputs = {};            // what the algorithm adds up or merges
  TokenSplit tokens;
  Merge merge = merge_rows;
};

// Rows, and heads, of a dense tensor.
template <typename Data>
BasicTensorView<Data> rows_of(BasicTensorView<Data> t, RowRange rows) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  t.data = static_cast<Byte*>(t.data) + rows.first * t.row_stride * element_size(t.dtype);
  t.length = rows.size();
  return t;
}
template <typename Data>
BasicTensorView<Data> heads_of(BasicTensorView<Data> t, RowRange heads) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  t.data = static_cast<Byte*>(t.data) + heads.first * t.head_stride * element_size(t.dtype);
  t.heads = heads.size();
  return t;
}

// The copies of a tensor's rows into another of the same shape: as few and as wide as the strides
// of both allow.
std::vector<RowCopy> copies_of(const ConstTensorView& from, const TensorView& to);

// A dense tensor in the memory of a rank.
class RankTensor {
 public:
  RankTensor() = default;
  RankTensor(DeviceGroup&, int rank, Dtype, Layout, int64_t batch, int64_t heads, int64_t length,
             int64_t head_dim);
  RankTensor(Buffer buffer, TensorView view) : buffer_(std::move(buffer)), view_(view) {
    view_.data = buffer_.data();
  }
  const TensorView& view() const { return view_; }
  TensorView first_rows(int64_t rows) const { return rows_of(view_, {0, rows}); }

 private:
  Buffer buffer_;
  TensorView view_;
};

// One of the devices, which has the chunks tokens().chunks_of(number()) of every tensor of the
// case. Unless they say otherwise, members are called from within DeviceGroup::run().
class Rank {
 public:
  Rank(DeviceGroup&, int number, const SplitParts&, const Problem& whole);

  int number() const { return number_; }
  DeviceGroup& group() const { return group_; }
  const TokenSplit& tokens() const { return parts_.tokens; }
  const Problem& whole() const { return whole_; }
  std::array<RowRange, 2> rows_of_rank(int rank) const;
  std::array<RowRange, 2> own_rows() const { return rows_of_rank(number_); }
  bool causal() const { return whole_.mask != Mask::none; }

  // [batch, heads, length, head_dim], as kernels take a logsumexp.
  RankTensor tensor(Dtype, int64_t heads, int64_t length, int64_t head_dim) const;
  // The same, for all ranks: each row is in the memory of its token's owner.
  RankTensor tensor_for_all(Dtype, int64_t heads, int64_t length, int64_t head_dim) const;
  // As tensor(), in the layout of the case, so that its rows come in large pieces.
  RankTensor pulled_tensor(Dtype, int64_t heads, int64_t length, int64_t head_dim) const;

  // The problem of these queries and keys. `diagonal`: the last query is that of the last key, and
  // none sees later keys; otherwise each query sees each key.
  Problem block(int64_t queries, int64_t keys, bool diagonal) const;

  // Where heads are split: the rank's K/V heads; the query heads that share K/V heads; and the
  // problem of these and all tokens.
  RowRange own_kv_heads() const;
  RowRange q_heads_of(RowRange kv_heads) const;
  Problem block_of_heads(RowRange kv_heads) const;

  // Before the first run: asks for workspace for the kernel on a problem; then gets what was asked.
  void reserve(const Problem&);
  void allocate_workspace();

  // The kernel for a problem, e.g. "cpu_tiled_forward 256x256 AVX3".
  std::string variant(const Problem&) const;

  // Whether a kernel can compute a share, and read this rank's rows where they are.
  bool knows_shares() const { return parts_.kernel->knows_shares; }
  bool own_in_place() const {
    return tokens().tokens % (tokens().chunks() * parts_.kernel->share_rows) == 0;
  }

  // Rows of another rank, and where they go.
  struct RowsFrom {
    int owner;
    std::vector<std::pair<ConstTensorView, TensorView>> rows;
  };

  // Runs the kernel, on a CPU with a gate and on a GPU for a share if there is one; nothing while
  // only copies are made.
  void compute(const Problem&, const Inputs&, const Outputs&,
               const kernels::KeyGate* gate = nullptr, const kernels::Share* share = nullptr) const;

  // Runs the kernel for a share, which fetches these rows of other ranks itself. While only copies
  // are made, another kernel does, with the whole GPU.
  void compute_share(const Problem&, const Inputs&, const Outputs&, kernels::Share,
                     const std::vector<RowsFrom>& fetched);

  // Runs the kernel of the backward pass, which writes dQ and adds dK and dV to the sums; nothing
  // while only copies are made.
  void compute_into_sums(const Problem&, const Inputs&, const TensorView& dq,
                         const kernels::KeySums&) const;
  // Makes dK and dV of the sums, in blocks that begin with one of `keys` (see AttentionKernel);
  // nothing while only copies are made.
  void store_key_sums(const kernels::KeySums&, RowRange keys, const Outputs&) const;
  int64_t key_sum_columns() const { return parts_.kernel->key_sum_columns(whole_); }

  // Work on rows of this rank's memory (providers/split/row_work.h); nothing while only copies are
  // made.
  void fill(const TensorView&, float value) const;
  void add(const TensorView& sum, const ConstTensorView& part) const;
  void store(const ConstTensorView& from, const TensorView& to) const;
  void merge(const TensorView& sum_o, const TensorView& sum_lse, const TensorView& part_o,
             const TensorView& part_lse) const;

  // Merges a part of each rank to rows of the case's tensors, and counts what is read of others;
  // nothing while only computing, because it is what takes the place of copies.
  void merge_parts(const std::vector<PartialRows>& parts, const TensorView& o,
                   const TensorView& logsumexp);
  // Counts a tensor of another rank that a kernel of this one reads, or adds to.
  void count_read(int owner, const ConstTensorView&);
  void count_added(int owner, const ConstTensorView&);

  // Pulls rows of `from` on the copy engine, with a mark once the owner has set that. Nothing while
  // only computing. Returns what to wait for.
  int64_t pull(int owner, const std::vector<std::pair<ConstTensorView, TensorView>>& rows,
               int mark = DeviceGroup::kNoMark);
  // The same from several other ranks at once.
  int64_t pull_from(const std::vector<RowsFrom>&);
  // Copies the rows by a kernel, before what is computed from here on. While nothing else runs they
  // are there sooner: a copy engine takes some 9 us to begin with each tensor.
  void fetch(const std::vector<RowsFrom>&);
  // The same whatever part of the run is made, and not counted.
  void copy(const std::vector<RowsFrom>&) const;
  // Sends to other ranks and receives from them by NCCL, beside what is computed from here on.
  // Nothing while only computing. Returns what to wait for.
  int64_t exchange(const std::vector<NcclSend>&, const std::vector<NcclReceive>&);
  void wait(int64_t pull) const;
  void wait_for_others(int64_t pull) const;  // one with a mark
  void barrier() const;

  // Shows what the rank is at from here on, or that it is done.
  void begin(const RankStep&) const;
  void end() const;
  void show_on(StepBoard& board) { board_ = &board; }

  void only(GroupPart part) { part_ = part; }
  GroupPart part() const { return part_; }
  std::vector<int64_t>& pulled_bytes() { return pulled_bytes_; }
  int64_t& pushed_bytes() { return pushed_bytes_; }

 private:
  void show_waiting() const;

  // The copies of a pull, whose bytes it counts; none while only computing.
  std::vector<RowCopy> copies_from(const RowsFrom&);

  // A GPU's forward kernel finds its workspace as its last launch left it, so that each problem has
  // one of its own. All others begin anew, and one serves all problems.
  struct Workspace {
    Problem problem;
    size_t bytes = 0;
    Buffer buffer;
  };
  kernels::Launch launch_of(const Problem&) const;
  bool serves(const Workspace&, const Problem&) const;
  void* workspace_at(const Problem&) const;
  bool works_on_rows(const TensorView&) const;
  Stream stream() const { return group_.stream(number_); }

  DeviceGroup& group_;
  int number_;
  const SplitParts& parts_;
  const Problem& whole_;
  std::unique_ptr<RowWork> rows_;
  std::vector<Workspace> workspaces_;
  GroupPart part_ = GroupPart::everything;
  std::vector<int64_t> pulled_bytes_;  // from each rank, in this run
  int64_t pushed_bytes_ = 0;           // to others
  StepBoard* board_ = nullptr;
};

}  // namespace flashbench
