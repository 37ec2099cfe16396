#include "providers/split/rank.h"

#include <algorithm>
#include <utility>

#include "attention/half.h"

namespace flashbench {

namespace {

template <typename View>
auto* row_at(const View& t, int64_t b, int64_t h, int64_t row) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(t.data)>>,
                                  const std::byte, std::byte>;
  return static_cast<Byte*>(t.data) + t.offset(b, h, row) * element_size(t.dtype);
}

float* floats_at(const TensorView& t, int64_t b, int64_t h, int64_t row) {
  return reinterpret_cast<float*>(row_at(t, b, h, row));
}

void add_row(const TensorView& sum, const ConstTensorView& part, int64_t b, int64_t h,
             int64_t row) {
  float* to = floats_at(sum, b, h, row);
  const auto* from = reinterpret_cast<const float*>(row_at(part, b, h, row));
  for (int64_t i = 0; i < sum.head_dim; ++i) to[i] += from[i];
}

// Calls work(batch, head, row) for each row of a tensor.
template <typename Work>
void for_each_row(const Rank& rank, int64_t batch, int64_t heads, int64_t length,
                  const Work& work) {
  if (length == 0) return;
  rank.for_rows(batch * heads * length,
                [&](int64_t i) { work(i / length / heads, i / length % heads, i % length); });
}

}  // namespace

std::vector<RowCopy> copies_of(const ConstTensorView& from, const TensorView& to) {
  std::vector<RowCopy> copies;
  const auto bytes = [](int64_t elements, Dtype dtype) {
    return static_cast<size_t>(elements * element_size(dtype));
  };
  for (int64_t b = 0; b < from.batch; ++b) {
    for (int64_t h = 0; h < from.heads; ++h) {
      if (from.length == 0) continue;
      copies.push_back({row_at(to, b, h, 0), row_at(from, b, h, 0),
                        bytes(from.head_dim, from.dtype), static_cast<size_t>(from.length),
                        bytes(to.row_stride, to.dtype), bytes(from.row_stride, from.dtype)});
    }
  }
  return copies;
}

RankTensor::RankTensor(DeviceGroup& group, int rank, Dtype dtype, int64_t batch, int64_t heads,
                       int64_t length, int64_t head_dim)
    : buffer_(group.allocate(
          rank, static_cast<size_t>(batch * heads * length * head_dim * element_size(dtype)))),
      view_(dense_view(buffer_.data(), dtype, Layout::bhsd, batch, heads, length, head_dim)) {}

Rank::Rank(DeviceGroup& group, int number, const SplitParts& parts, const Problem& whole)
    : group_(group),
      number_(number),
      parts_(parts),
      whole_(whole),
      pulled_bytes_(static_cast<size_t>(group.ranks())) {}

std::array<RowRange, 2> Rank::rows_of_rank(int rank) const {
  const auto [first, second] = tokens().chunks_of(rank);
  return {tokens().chunk(first), tokens().chunk(second)};
}

RankTensor Rank::tensor(Dtype dtype, int64_t heads, int64_t length, int64_t head_dim) const {
  return RankTensor(group_, number_, dtype, whole_.batch, heads, length, head_dim);
}

Problem Rank::block(int64_t queries, int64_t keys, bool diagonal) const {
  Problem p = whole_;
  p.gpus.reset();
  p.split = Split::zigzag;
  p.q_len = queries;
  p.kv_len = keys;
  p.mask = diagonal ? Mask::causal_bottom_right : Mask::none;
  return p;
}

void Rank::reserve(const Problem& p) {
  if (p.q_len == 0 || p.kv_len == 0) return;
  const size_t bytes =
      parts_.kernel->workspace_bytes({.problem = p, .device = group_.info(number_)});
  workspace_bytes_ = std::max(workspace_bytes_, bytes);
}

void Rank::allocate_workspace() {
  workspace_ = group_.allocate(number_, workspace_bytes_);
}

void Rank::compute(const Problem& p, const Inputs& in, const Outputs& out,
                   const kernels::KeyGate* gate) const {
  if (part_ == GroupPart::copying || p.q_len == 0 || p.kv_len == 0) return;
  parts_.kernel->launch({.problem = p, .device = group_.info(number_), .gate = gate}, in, out,
                        workspace_.data(), group_.stream(number_));
}

void Rank::for_rows(int64_t rows, const std::function<void(int64_t)>& work) const {
  if (part_ == GroupPart::copying) return;
  constexpr int64_t kTogether = 64;
  group_.stream(number_).threads->parallel_for(
      (rows + kTogether - 1) / kTogether, [&](int64_t item, int) {
        const int64_t end = std::min(rows, (item + 1) * kTogether);
        for (int64_t row = item * kTogether; row < end; ++row) work(row);
      });
}

void Rank::merge(const TensorView& sum_o, const TensorView& sum_lse, const TensorView& part_o,
                 const TensorView& part_lse) const {
  for_each_row(*this, sum_o.batch, sum_o.heads, sum_o.length,
               [&](int64_t b, int64_t h, int64_t row) {
                 parts_.merge({floats_at(sum_o, b, h, row), floats_at(sum_lse, b, h, row)},
                              {floats_at(part_o, b, h, row), floats_at(part_lse, b, h, row)},
                              sum_o.head_dim);
               });
}

int64_t Rank::pull(int owner, const std::vector<std::pair<ConstTensorView, TensorView>>& rows,
                   int mark) {
  std::vector<RowCopy> copies;
  if (part_ != GroupPart::computing) {
    for (const auto& [from, to] : rows) {
      for (RowCopy& copy : copies_of(from, to)) copies.push_back(copy);
    }
  }
  for (const RowCopy& copy : copies) pulled_bytes_[static_cast<size_t>(owner)] += copy.bytes();
  return group_.pull(number_, owner, std::move(copies), mark);
}

void Rank::wait(int64_t pull) const {
  group_.wait(number_, pull);
}

void Rank::wait_for_others(int64_t pull) const {
  show_waiting();
  group_.wait(number_, pull);
}

void Rank::barrier() const {
  show_waiting();
  group_.barrier(number_);
}

void Rank::show_waiting() const {
  if (board_ == nullptr) return;
  group_.when_done(number_, [this] { board_->wait_for_others(number_); });
}

void Rank::begin(const RankStep& step) const {
  if (board_ == nullptr) return;
  group_.when_done(number_, [this, step] { board_->begin(number_, step); });
}

void fill_rows(const Rank& rank, const TensorView& t, float value) {
  for_each_row(rank, t.batch, t.heads, t.length, [&](int64_t b, int64_t h, int64_t row) {
    std::fill_n(floats_at(t, b, h, row), t.head_dim, value);
  });
}

void add_rows(const Rank& rank, const TensorView& sum, const ConstTensorView& part) {
  for_each_row(rank, sum.batch, sum.heads, sum.length,
               [&](int64_t b, int64_t h, int64_t row) { add_row(sum, part, b, h, row); });
}

void add_rows(const TensorView& sum, const ConstTensorView& part) {
  for (int64_t b = 0; b < sum.batch; ++b) {
    for (int64_t h = 0; h < sum.heads; ++h) {
      for (int64_t row = 0; row < sum.length; ++row) add_row(sum, part, b, h, row);
    }
  }
}

void store_rows_as(const Rank& rank, const ConstTensorView& from, const TensorView& to) {
  for_each_row(rank, to.batch, to.heads, to.length, [&](int64_t b, int64_t h, int64_t row) {
    const auto* values = reinterpret_cast<const float*>(row_at(from, b, h, row));
    for (int64_t i = 0; i < to.head_dim; ++i) {
      store_element(row_at(to, b, h, row), to.dtype, i, values[i]);
    }
  });
}

}  // namespace flashbench
