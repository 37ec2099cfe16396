// What the algorithms of several devices do on one of them: pull rows from the others, run kernels
// on blocks of queries and keys, merge.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention/tensors.h"
#include "attention/token_split.h"
#include "device/device_group.h"
#include "device/step_board.h"
#include "kernels/attention.h"
#include "providers/provider.h"
#include "providers/split/merge.h"

namespace flashbench {

// What an algorithm is made of. Tests plant defects in its parts.
struct SplitParts {
  const kernels::AttentionKernel* kernel = nullptr;  // of one device, for the pass
  TokenSplit tokens;
  Merge merge = merge_rows;
};

// Rows [first, end), and heads [first, first + count), of a dense tensor.
template <typename Data>
BasicTensorView<Data> rows_of(BasicTensorView<Data> t, RowRange rows) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  t.data = static_cast<Byte*>(t.data) + rows.first * t.row_stride * element_size(t.dtype);
  t.length = rows.size();
  return t;
}
template <typename Data>
BasicTensorView<Data> heads_of(BasicTensorView<Data> t, int64_t first, int64_t count) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  t.data = static_cast<Byte*>(t.data) + first * t.head_stride * element_size(t.dtype);
  t.heads = count;
  return t;
}

// The copies of a tensor's rows into another of the same shape.
std::vector<RowCopy> copies_of(const ConstTensorView& from, const TensorView& to);

// A tensor in the memory of a rank, [batch, heads, length, head_dim].
class RankTensor {
 public:
  RankTensor() = default;
  RankTensor(DeviceGroup&, int rank, Dtype, int64_t batch, int64_t heads, int64_t length,
             int64_t head_dim);
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

  RankTensor tensor(Dtype, int64_t heads, int64_t length, int64_t head_dim) const;

  // The problem of these queries and keys. `diagonal`: the last query is that of the last key, and
  // none sees later keys; otherwise each query sees each key.
  Problem block(int64_t queries, int64_t keys, bool diagonal) const;

  // Before the first run: asks for workspace for the kernel on a problem; then gets the most asked.
  void reserve(const Problem&);
  void allocate_workspace();

  // Runs the kernel, waiting for it; nothing while only copies are made.
  void compute(const Problem&, const Inputs&, const Outputs&,
               const kernels::KeyGate* gate = nullptr) const;

  // Work on rows of this rank's memory, by its threads; nothing while only copies are made.
  void for_rows(int64_t rows, const std::function<void(int64_t row)>& work) const;

  // Merges rows [length, 1] of logsumexp and [length, columns] of O of all heads, fp32.
  void merge(const TensorView& sum_o, const TensorView& sum_lse, const TensorView& part_o,
             const TensorView& part_lse) const;

  // Pulls rows of `from` on the copy engine, with a mark once the owner has set that. Nothing while
  // only computing. Returns what to wait for.
  int64_t pull(int owner, const std::vector<std::pair<ConstTensorView, TensorView>>& rows,
               int mark = DeviceGroup::kNoMark);
  void wait(int64_t pull) const;
  void wait_for_others(int64_t pull) const;  // one with a mark
  void barrier() const;

  // Shows what the rank is at from here on.
  void begin(const RankStep&) const;
  void show_on(StepBoard& board) { board_ = &board; }

  void only(GroupPart part) { part_ = part; }
  GroupPart part() const { return part_; }
  std::vector<int64_t>& pulled_bytes() { return pulled_bytes_; }

 private:
  void show_waiting() const;

  DeviceGroup& group_;
  int number_;
  const SplitParts& parts_;
  const Problem& whole_;
  Buffer workspace_;
  size_t workspace_bytes_ = 0;
  GroupPart part_ = GroupPart::everything;
  std::vector<int64_t> pulled_bytes_;  // from each rank, in this run
  StepBoard* board_ = nullptr;
};

// Fills, adds or stores fp32 rows of one shape, all batches and heads.
void fill_rows(const Rank&, const TensorView&, float value);
void add_rows(const Rank&, const TensorView& sum, const ConstTensorView& part);
void store_rows_as(const Rank&, const ConstTensorView& from, const TensorView& to);

// The same by the calling thread alone, which may be one of a kernel's.
void add_rows(const TensorView& sum, const ConstTensorView& part);

}  // namespace flashbench
