#include "device/device_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "inputs/padding.h"

namespace flashbench {

namespace {

size_t query_bytes(const Problem& p) {
  return static_cast<size_t>(p.query_elements() * element_size(p.dtype));
}
size_t output_bytes(const Problem& p, Dtype dtype) {
  return static_cast<size_t>(p.output_elements() * element_size(dtype));
}
size_t key_bytes(const Problem& p) {
  return static_cast<size_t>(p.key_elements() * element_size(p.key_dtype()));
}
size_t value_bytes(const Problem& p) {
  return static_cast<size_t>(p.value_elements() * element_size(p.key_dtype()));
}
size_t row_bytes(const Problem& p) {
  return static_cast<size_t>(p.query_rows()) * sizeof(float);
}

// The dense tensor shapes that placements start from.
ConstTensorView query_shape(const Problem& p) {
  return query_view<const void>(nullptr, p);
}
ConstTensorView output_shape(const Problem& p) {
  return output_view<const void>(nullptr, p);
}
ConstTensorView key_shape(const Problem& p) {
  return key_view<const void>(nullptr, p);
}
ConstTensorView value_shape(const Problem& p) {
  return value_view<const void>(nullptr, p);
}
ConstTensorView row_shape(const Problem& p) {
  return logsumexp_view<const void>(nullptr, p);
}
// A table's entries are as wide as fp32's: a tensor of one head, whose rows are the requests'.
ConstTensorView table_shape(const Problem& p) {
  return dense_view<const void>(nullptr, Dtype::fp32, Layout::bhsd, 1, 1, p.batch, p.table_width());
}

ConstTensorView descales_shape(int64_t count) {
  return dense_view<const void>(nullptr, Dtype::fp32, Layout::bhsd, 1, 1, 1, count);
}
const float* factors_in(const PlacedTensor& placed) {
  return static_cast<const float*>(placed.view().data);
}

// The rows of each request where there are others behind them.
const RequestRows* own_queries(const Problem& p) {
  return p.is_padded() ? &p.lengths->queries() : nullptr;
}
const RequestRows* own_keys(const Problem& p) {
  return p.is_padded() ? &p.lengths->keys() : nullptr;
}

// The one factor of O in e4m3.
TensorView with_descale(TensorView o, const void* descale) {
  if (o.dtype == Dtype::e4m3) o.descales = {static_cast<const float*>(descale), 0, 0, 0};
  return o;
}

// Requests of different lengths and pages are not split yet.
bool is_split(const Problem& p) {
  return p.gpus && !p.lengths && !p.is_paged();
}

// Whose rows they are of a problem that several devices share: of Q and what is shaped like it, and
// of K and V. Where keys are split, there are few queries, and one device has them all.
std::optional<PlacedTensor::Ranks> ranks_of_queries(const Problem& p) {
  if (!is_split(p) || p.split == Split::keys) return std::nullopt;
  const auto count = static_cast<int>(*p.gpus);
  return PlacedTensor::Ranks{owned_rows(TokenSplit{p.split, p.q_len, count}), count};
}
std::optional<PlacedTensor::Ranks> ranks_of_keys(const Problem& p) {
  if (!is_split(p)) return std::nullopt;
  const auto count = static_cast<int>(*p.gpus);
  if (p.split == Split::keys) return PlacedTensor::Ranks{owned_rows(KeySplit::of(p)), count};
  return PlacedTensor::Ranks{owned_rows(TokenSplit{p.split, p.kv_len, count}), count};
}

Placement row_placement(Placement placement) {
  return placement == Placement::strided ? Placement::contiguous : placement;
}

}  // namespace

DeviceInputs::DeviceInputs(Device& device, const Problem& problem, Placement placement,
                           const Inputs& host)
    : problem_(problem),
      q_(device, query_shape(problem), placement, MemoryUse::input, ranks_of_queries(problem)),
      k_(device, key_shape(problem), placement, MemoryUse::input, ranks_of_keys(problem)),
      v_(device, value_shape(problem), placement, MemoryUse::input, ranks_of_keys(problem)) {
  if (problem.pass == Pass::backward) {
    const auto of_queries = [&](const ConstTensorView& shape, Placement where) {
      return PlacedTensor(device, shape, where, MemoryUse::input, ranks_of_queries(problem));
    };
    o_ = of_queries(output_shape(problem), placement);
    d_o_ = of_queries(output_shape(problem), placement);
    logsumexp_ = of_queries(row_shape(problem), row_placement(placement));
  }
  if (problem.is_paged()) {
    table_ = PlacedTensor(device, table_shape(problem), placement, MemoryUse::input);
  }
  if (problem.has_scaled_keys()) {
    const auto factors = [&](int64_t count) {
      return PlacedTensor(device, descales_shape(count), row_placement(placement),
                          MemoryUse::input);
    };
    if (problem.is_scaled()) q_descales_ = factors(problem.query_descales());
    k_descales_ = factors(problem.key_descales());
    v_descales_ = factors(problem.key_descales());
  }
  refill(host);
}

void DeviceInputs::refill_q_and_k(const Inputs& host) {
  q_.write(host.q.data);
  k_.write(host.k.data);
}

void DeviceInputs::refill(const Inputs& host) {
  refill_q_and_k(host);
  v_.write(host.v.data);
  o_.write(host.o.data);
  d_o_.write(host.d_o.data);
  logsumexp_.write(host.logsumexp);
  table_.write(host.k.pages.table);
  q_descales_.write(host.q.descales.data);
  k_descales_.write(host.k.descales.data);
  v_descales_.write(host.v.descales.data);
}

void DeviceInputs::poison() {
  for (PlacedTensor* tensor : {&q_, &k_, &v_, &o_, &d_o_, &logsumexp_}) tensor->poison();
}

void DeviceInputs::negate() {
  (problem_.pass == Pass::forward ? v_ : d_o_).negate();
}

Inputs DeviceInputs::view() const {
  Inputs inputs;
  inputs.q = q_.view();
  inputs.k = k_.view();
  inputs.v = v_.view();
  inputs.q.descales = query_descales_view(factors_in(q_descales_), problem_);
  inputs.k.descales = key_descales_view(factors_in(k_descales_), problem_);
  inputs.v.descales = key_descales_view(factors_in(v_descales_), problem_);
  if (problem_.is_paged()) {
    const auto* table = static_cast<const int32_t*>(table_.view().data);
    inputs.k = paged_view(inputs.k, problem_, table, table_.view().row_stride);
    inputs.v = paged_view(inputs.v, problem_, table, table_.view().row_stride);
  }
  if (problem_.pass == Pass::backward) {
    inputs.o = o_.view();
    inputs.d_o = d_o_.view();
    inputs.logsumexp = static_cast<const float*>(logsumexp_.view().data);
  }
  return inputs;
}

std::array<const PlacedTensor*, 10> DeviceInputs::tensors() const {
  return {&q_,         &k_,     &v_,          &o_,          &d_o_,
          &logsumexp_, &table_, &q_descales_, &k_descales_, &v_descales_};
}

uint64_t DeviceInputs::hash() const {
  uint64_t hash = 0;
  for (const PlacedTensor* tensor : tensors()) hash = tensor->hash(hash);
  return hash;
}

int64_t DeviceInputs::guard_bytes() const {
  int64_t bytes = 0;
  for (const PlacedTensor* tensor : tensors()) bytes += tensor->guard_bytes();
  return bytes;
}

HostOutputs::HostOutputs(const Problem& problem, bool logsumexp,
                         const std::optional<OutputFormat>& o)
    : problem_(problem), o_format_(o.value_or(OutputFormat{problem.output_dtype()})) {
  if (problem.pass == Pass::forward) {
    o_.resize(output_bytes(problem, o_format_.dtype));
    if (logsumexp) logsumexp_.resize(row_bytes(problem));
  } else {
    dq_.resize(query_bytes(problem));
    dk_.resize(key_bytes(problem));
    dv_.resize(value_bytes(problem));
  }
}

Outputs HostOutputs::view() {
  Outputs outputs;
  if (problem_.pass == Pass::forward) {
    outputs.o =
        with_descale(output_view<void>(o_.data(), problem_, o_format_.dtype), &o_format_.descale);
    if (!logsumexp_.empty()) outputs.logsumexp = reinterpret_cast<float*>(logsumexp_.data());
  } else {
    outputs.dq = query_view<void>(dq_.data(), problem_);
    outputs.dk = key_view<void>(dk_.data(), problem_);
    outputs.dv = value_view<void>(dv_.data(), problem_);
  }
  return outputs;
}

void HostOutputs::forget_padding() {
  if (!problem_.is_padded()) return;
  const Outputs outputs = view();
  for (const TensorView& tensor : {outputs.o, outputs.dq}) {
    if (tensor.data != nullptr) poison_padding(tensor, *own_queries(problem_));
  }
  for (const TensorView& tensor : {outputs.dk, outputs.dv}) {
    if (tensor.data != nullptr) poison_padding(tensor, *own_keys(problem_));
  }
  if (outputs.logsumexp != nullptr) {
    poison_padding(logsumexp_view<void>(outputs.logsumexp, problem_), *own_queries(problem_));
  }
}

DeviceOutputs::DeviceOutputs(Device& device, const Problem& problem, Placement placement,
                             bool logsumexp, const std::optional<OutputFormat>& o)
    : problem_(problem), o_format_(o.value_or(OutputFormat{problem.output_dtype()})) {
  const auto make = [&](const ConstTensorView& shape, Placement where,
                        const std::optional<PlacedTensor::Ranks>& ranks) {
    return PlacedTensor(device, shape, where, MemoryUse::output, ranks);
  };
  const auto of_queries = ranks_of_queries(problem);
  if (problem.pass == Pass::forward) {
    o_ = make(output_view<const void>(nullptr, problem, o_format_.dtype), placement, of_queries);
    if (o_format_.dtype == Dtype::e4m3) {
      o_descale_ = PlacedTensor(device, descales_shape(1), Placement::contiguous, MemoryUse::input);
      o_descale_.write(&o_format_.descale);
    }
    if (logsumexp) logsumexp_ = make(row_shape(problem), row_placement(placement), of_queries);
  } else {
    dq_ = make(query_shape(problem), placement, of_queries);
    dk_ = make(key_shape(problem), placement, ranks_of_keys(problem));
    dv_ = make(value_shape(problem), placement, ranks_of_keys(problem));
  }
}

Outputs DeviceOutputs::view() const {
  Outputs outputs;
  if (problem_.pass == Pass::forward) {
    outputs.o = with_descale(o_.view(), o_descale_.view().data);
    outputs.logsumexp = static_cast<float*>(logsumexp_.view().data);
  } else {
    outputs.dq = dq_.view();
    outputs.dk = dk_.view();
    outputs.dv = dv_.view();
  }
  return outputs;
}

void DeviceOutputs::poison() {
  for (PlacedTensor* tensor : {&o_, &logsumexp_, &dq_, &dk_, &dv_}) tensor->poison();
}

void DeviceOutputs::poison_with_flipped_signs() {
  for (PlacedTensor* tensor : {&o_, &logsumexp_, &dq_, &dk_, &dv_}) {
    tensor->poison();
    tensor->negate();
  }
}

void DeviceOutputs::negate() {
  for (PlacedTensor* tensor : {&o_, &dq_, &dk_, &dv_}) tensor->negate();
}

uint64_t DeviceOutputs::hash() const {
  uint64_t hash = 0;
  // The small one first: a thread that is late with it has no time to write it while O is hashed.
  for (const PlacedTensor* tensor : {&logsumexp_, &o_, &dq_, &dk_, &dv_}) {
    hash = tensor->hash(hash);
  }
  return hash;
}

HostOutputs DeviceOutputs::to_host() const {
  HostOutputs host(problem_, !logsumexp_.empty(), o_format_);
  o_.read(host.o_.data());
  logsumexp_.read(host.logsumexp_.data());
  dq_.read(host.dq_.data());
  dk_.read(host.dk_.data());
  dv_.read(host.dv_.data());
  host.forget_padding();
  return host;
}

std::string DeviceOutputs::damage() const {
  const std::pair<const char*, const PlacedTensor&> tensors[] = {
      {"o", o_}, {"logsumexp", logsumexp_}, {"dq", dq_}, {"dk", dk_}, {"dv", dv_}};
  for (const auto& [name, tensor] : tensors) {
    if (const int64_t bytes = tensor.damaged_guard_bytes(); bytes > 0) {
      return fmt::format("{} bytes outside the elements of {} were written", bytes, name);
    }
  }
  return "";
}

int64_t DeviceOutputs::guard_bytes() const {
  return o_.guard_bytes() + logsumexp_.guard_bytes() + dq_.guard_bytes() + dk_.guard_bytes() +
         dv_.guard_bytes();
}

int64_t DeviceOutputs::unwritten_elements() const {
  const RequestRows *queries = own_queries(problem_), *keys = own_keys(problem_);
  return o_.unwritten_elements(queries) + logsumexp_.unwritten_elements(queries) +
         dq_.unwritten_elements(queries) + dk_.unwritten_elements(keys) +
         dv_.unwritten_elements(keys);
}

}  // namespace flashbench
