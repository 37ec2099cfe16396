#include "providers/split/rank.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "device/page_owners.h"

namespace flashbench {

// Dimensions that lie dense on both sides are parts of a row, the next one makes rows, and the
// others copies.
std::vector<RowCopy> copies_of(const ConstTensorView& from, const TensorView& to) {
  struct Dimension {
    int64_t count;
    size_t from, to;  // strides in bytes
  };
  const auto bytes = [](int64_t elements, Dtype dtype) {
    return static_cast<size_t>(elements * element_size(dtype));
  };
  if (from.elements() == 0) return {};
  std::vector<Dimension> dimensions;
  const auto add = [&](int64_t count, int64_t from_stride, int64_t to_stride) {
    if (count == 1) return;
    dimensions.push_back({count, bytes(from_stride, from.dtype), bytes(to_stride, to.dtype)});
  };
  add(from.length, from.row_stride, to.row_stride);
  add(from.heads, from.head_stride, to.head_stride);
  add(from.batch, from.batch_stride, to.batch_stride);
  std::ranges::sort(dimensions, {}, &Dimension::from);

  RowCopy all{to.data, from.data, bytes(from.head_dim, from.dtype)};
  size_t next = 0;
  for (; next < dimensions.size(); ++next) {
    const Dimension& d = dimensions[next];
    if (d.from != all.width || d.to != all.width) break;
    all.width *= static_cast<size_t>(d.count);
  }
  if (next < dimensions.size()) {
    all.height = static_cast<size_t>(dimensions[next].count);
    all.from_pitch = dimensions[next].from;
    all.to_pitch = dimensions[next].to;
    ++next;
  }
  std::vector<RowCopy> copies{all};
  for (; next < dimensions.size(); ++next) {
    const Dimension& d = dimensions[next];
    const size_t before = copies.size();
    for (int64_t i = 1; i < d.count; ++i) {
      for (size_t one = 0; one < before; ++one) {
        RowCopy copy = copies[one];
        copy.from = static_cast<const std::byte*>(copy.from) + static_cast<size_t>(i) * d.from;
        copy.to = static_cast<std::byte*>(copy.to) + static_cast<size_t>(i) * d.to;
        copies.push_back(copy);
      }
    }
  }
  return copies;
}

RankTensor::RankTensor(DeviceGroup& group, int rank, Dtype dtype, Layout layout, int64_t batch,
                       int64_t heads, int64_t length, int64_t head_dim)
    : buffer_(group.allocate(
          rank, static_cast<size_t>(batch * heads * length * head_dim * element_size(dtype)))),
      view_(dense_view(buffer_.data(), dtype, layout, batch, heads, length, head_dim)) {}

Rank::Rank(DeviceGroup& group, int number, const SplitParts& parts, const Problem& whole)
    : group_(group),
      number_(number),
      parts_(parts),
      whole_(whole),
      rows_(group.info(number).kind == DeviceKind::cpu ? make_host_row_work(parts.merge)
                                                       : make_cuda_row_work()),
      pulled_bytes_(static_cast<size_t>(group.ranks())) {}

std::array<RowRange, 2> Rank::rows_of_rank(int rank) const {
  const auto [first, second] = tokens().chunks_of(rank);
  return {tokens().chunk(first), tokens().chunk(second)};
}

RankTensor Rank::tensor(Dtype dtype, int64_t heads, int64_t length, int64_t head_dim) const {
  return {group_, number_, dtype, Layout::bhsd, whole_.batch, heads, length, head_dim};
}

RankTensor Rank::tensor_for_all(Dtype dtype, int64_t heads, int64_t length,
                                int64_t head_dim) const {
  const TensorView view = dense_view(static_cast<void*>(nullptr), dtype, Layout::bhsd, whole_.batch,
                                     heads, length, head_dim);
  const auto bytes = static_cast<size_t>(view.elements() * element_size(dtype));
  return {group_.allocate_for_all(bytes, owned_bytes(view, 0, owned_rows(tokens()))), view};
}

RankTensor Rank::pulled_tensor(Dtype dtype, int64_t heads, int64_t length, int64_t head_dim) const {
  return {group_, number_, dtype, whole_.layout, whole_.batch, heads, length, head_dim};
}

Problem Rank::block(int64_t queries, int64_t keys, bool diagonal) const {
  Problem p = whole_.of_one_device();
  p.q_len = queries;
  p.kv_len = keys;
  p.mask = diagonal ? Mask::causal_bottom_right : Mask::none;
  return p;
}

RowRange Rank::own_kv_heads() const {
  const int64_t count = whole_.kv_heads / group_.ranks();
  return {number_ * count, (number_ + 1) * count};
}

RowRange Rank::q_heads_of(RowRange kv_heads) const {
  const int64_t shared_by = whole_.heads_per_kv_head();
  return {kv_heads.first * shared_by, kv_heads.end * shared_by};
}

Problem Rank::block_of_heads(RowRange kv_heads) const {
  Problem p = block(whole_.q_len, whole_.kv_len, causal());
  p.kv_heads = kv_heads.size();
  p.q_heads = q_heads_of(kv_heads).size();
  return p;
}

kernels::Launch Rank::launch_of(const Problem& p) const {
  const kernels::AttentionKernel& kernel = *parts_.kernel;
  const DeviceInfo& device = group_.info(number_);
  kernels::Launch launch{.problem = p, .device = device};
  if (kernel.choose != nullptr) launch.blocks = kernel.choose(p, device);
  launch.fp32_outputs = parts_.fp32_outputs;
  return launch;
}

bool Rank::serves(const Workspace& w, const Problem& p) const {
  const bool any = p.pass == Pass::backward || group_.info(number_).kind == DeviceKind::cpu;
  return any || w.problem == p;
}

void Rank::reserve(const Problem& p) {
  if (p.q_len == 0 || p.kv_len == 0) return;
  auto found = std::ranges::find_if(workspaces_, [&](const Workspace& w) { return serves(w, p); });
  if (found == workspaces_.end()) found = workspaces_.insert(found, {p, 0, {}});
  found->bytes = std::max(found->bytes, parts_.kernel->workspace_bytes(launch_of(p)));
}

void Rank::allocate_workspace() {
  for (Workspace& w : workspaces_) w.buffer = group_.allocate(number_, w.bytes);
}

void* Rank::workspace_at(const Problem& p) const {
  for (const Workspace& w : workspaces_) {
    if (serves(w, p)) return w.buffer.data();
  }
  throw std::logic_error("no workspace was reserved for this problem");
}

std::string Rank::variant(const Problem& p) const {
  return parts_.kernel->variant(launch_of(p));
}

void Rank::compute(const Problem& p, const Inputs& in, const Outputs& out,
                   const kernels::KeyGate* gate, const kernels::Share* share) const {
  if (part_ == GroupPart::copying || p.q_len == 0 || p.kv_len == 0) return;
  kernels::Launch launch = launch_of(p);
  launch.gate = gate;
  launch.share = share;
  parts_.kernel->launch(launch, in, out, workspace_at(p), stream());
}

void Rank::compute_into_sums(const Problem& p, const Inputs& in, const TensorView& dq,
                             const kernels::KeySums& sums) const {
  if (part_ == GroupPart::copying || p.q_len == 0 || p.kv_len == 0) return;
  kernels::Launch launch = launch_of(p);
  launch.key_sums = &sums;
  parts_.kernel->launch(launch, in, {.dq = dq}, workspace_at(p), stream());
}

void Rank::store_key_sums(const kernels::KeySums& sums, RowRange keys, const Outputs& out) const {
  if (part_ == GroupPart::copying || keys.empty()) return;
  const Problem p = whole_.of_one_device();
  kernels::Launch launch = launch_of(p);
  launch.key_sums = &sums;
  parts_.kernel->store_key_sums(launch, keys, out, stream());
}

bool Rank::works_on_rows(const TensorView& t) const {
  return part_ != GroupPart::copying && t.elements() > 0;
}

void Rank::fill(const TensorView& t, float value) const {
  if (works_on_rows(t)) rows_->fill(t, value, stream());
}

void Rank::add(const TensorView& sum, const ConstTensorView& part) const {
  if (works_on_rows(sum)) rows_->add(sum, part, stream());
}

void Rank::store(const ConstTensorView& from, const TensorView& to) const {
  if (works_on_rows(to)) rows_->store(from, to, stream());
}

void Rank::merge(const TensorView& sum_o, const TensorView& sum_lse, const TensorView& part_o,
                 const TensorView& part_lse) const {
  if (works_on_rows(sum_o)) rows_->merge(sum_o, sum_lse, part_o, part_lse, stream());
}

void Rank::merge_parts(const std::vector<PartialRows>& parts, const TensorView& o,
                       const TensorView& logsumexp) {
  if (part_ == GroupPart::computing || o.elements() == 0) return;
  for (size_t from = 0; from < parts.size(); ++from) {
    count_read(static_cast<int>(from), parts[from].o);
    count_read(static_cast<int>(from), parts[from].logsumexp);
  }
  rows_->merge_parts(parts, o, logsumexp, stream());
}

void Rank::count_read(int owner, const ConstTensorView& t) {
  if (part_ == GroupPart::computing) return;
  pulled_bytes_[static_cast<size_t>(owner)] += t.elements() * element_size(t.dtype);
}

void Rank::count_added(int owner, const ConstTensorView& t) {
  if (part_ == GroupPart::computing || owner == number_) return;
  pushed_bytes_ += t.elements() * element_size(t.dtype);
}

std::vector<RowCopy> Rank::copies_from(const RowsFrom& source) {
  std::vector<RowCopy> copies;
  if (part_ == GroupPart::computing) return copies;
  for (const auto& [from, to] : source.rows) {
    for (const RowCopy& copy : copies_of(from, to)) {
      copies.push_back(copy);
      pulled_bytes_[static_cast<size_t>(source.owner)] += copy.bytes();
    }
  }
  return copies;
}

int64_t Rank::pull(int owner, const std::vector<std::pair<ConstTensorView, TensorView>>& rows,
                   int mark) {
  return group_.pull(number_, owner, copies_from({owner, rows}), mark);
}

int64_t Rank::pull_from(const std::vector<RowsFrom>& sources) {
  std::vector<DeviceGroup::Source> all;
  for (const RowsFrom& source : sources) all.push_back({source.owner, copies_from(source)});
  return group_.pull_from(number_, std::move(all));
}

void Rank::fetch(const std::vector<RowsFrom>& sources) {
  std::vector<RowCopy> all;
  for (const RowsFrom& source : sources) {
    const std::vector<RowCopy> copies = copies_from(source);
    all.insert(all.end(), copies.begin(), copies.end());
  }
  rows_->copy(all, stream());
}

void Rank::copy(const std::vector<RowsFrom>& sources) const {
  std::vector<RowCopy> all;
  for (const RowsFrom& source : sources) {
    for (const auto& [from, to] : source.rows) {
      const std::vector<RowCopy> copies = copies_of(from, to);
      all.insert(all.end(), copies.begin(), copies.end());
    }
  }
  rows_->copy(all, stream());
}

void Rank::compute_share(const Problem& p, const Inputs& in, const Outputs& out,
                         kernels::Share share, const std::vector<RowsFrom>& fetched) {
  if (part_ == GroupPart::copying) return fetch(fetched);
  for (const RowsFrom& source : fetched) {
    for (const auto& [from, to] : source.rows) count_read(source.owner, from);
  }
  share.fetches = part_ == GroupPart::everything;
  compute(p, in, out, nullptr, &share);
}

int64_t Rank::exchange(const std::vector<NcclSend>& sends,
                       const std::vector<NcclReceive>& receives) {
  if (part_ == GroupPart::computing) return group_.pull(number_, number_, {});
  for (const NcclReceive& receive : receives) {
    pulled_bytes_[static_cast<size_t>(receive.from)] += static_cast<int64_t>(receive.bytes);
  }
  return group_.communicate(number_, [&](const NcclRanks& nccl, Stream stream) {
    nccl.exchange(number_, sends, receives, stream);
  });
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
  group_.when_done(number_, [board = board_, rank = number_] { board->wait_for_others(rank); });
}

void Rank::begin(const RankStep& step) const {
  if (board_ == nullptr) return;
  group_.when_done(number_, [board = board_, rank = number_, step] { board->begin(rank, step); });
}

void Rank::end() const {
  if (board_ == nullptr) return;
  group_.when_done(number_, [board = board_, rank = number_] { board->end(rank); });
}

}  // namespace flashbench
