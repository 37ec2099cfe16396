#include "device/device_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "device/checksum.h"

namespace flashbench {

namespace {

size_t query_bytes(const Problem& p) {
  return static_cast<size_t>(p.query_elements() * element_size(p.dtype));
}
size_t key_bytes(const Problem& p) {
  return static_cast<size_t>(p.key_elements() * element_size(p.dtype));
}
size_t row_bytes(const Problem& p) {
  return static_cast<size_t>(p.query_rows()) * sizeof(float);
}

// How many elements of `element_bytes` are the poison pattern.
int64_t poisoned_elements(std::span<const std::byte> bytes, size_t element_bytes) {
  static constexpr std::array<unsigned char, sizeof(float)> kPattern{kPoisonByte, kPoisonByte,
                                                                     kPoisonByte, kPoisonByte};
  int64_t count = 0;
  for (size_t i = 0; i < bytes.size(); i += element_bytes) {
    count += std::memcmp(bytes.data() + i, kPattern.data(), element_bytes) == 0 ? 1 : 0;
  }
  return count;
}

}  // namespace

DeviceInputs::DeviceInputs(Device& device, const Problem& problem, const Inputs& host)
    : device_(&device),
      problem_(problem),
      q_(device.allocate(query_bytes(problem), MemoryUse::input)),
      k_(device.allocate(key_bytes(problem), MemoryUse::input)),
      v_(device.allocate(key_bytes(problem), MemoryUse::input)) {
  if (problem.pass == Pass::backward) {
    o_ = device.allocate(query_bytes(problem), MemoryUse::input);
    d_o_ = device.allocate(query_bytes(problem), MemoryUse::input);
    logsumexp_ = device.allocate(row_bytes(problem), MemoryUse::input);
  }
  refill(host);
}

void DeviceInputs::refill(const Inputs& host) {
  const auto fill = [this](const Buffer& to, const void* from) {
    if (to.bytes() > 0) device_->copy_to_device(to.data(), from, to.bytes());
  };
  fill(q_, host.q.data);
  fill(k_, host.k.data);
  fill(v_, host.v.data);
  fill(o_, host.o.data);
  fill(d_o_, host.d_o.data);
  fill(logsumexp_, host.logsumexp);
}

Inputs DeviceInputs::view() const {
  Inputs inputs;
  inputs.q = query_view<const void>(q_.data(), problem_);
  inputs.k = key_view<const void>(k_.data(), problem_);
  inputs.v = key_view<const void>(v_.data(), problem_);
  if (problem_.pass == Pass::backward) {
    inputs.o = query_view<const void>(o_.data(), problem_);
    inputs.d_o = query_view<const void>(d_o_.data(), problem_);
    inputs.logsumexp = logsumexp_.as<const float>();
  }
  return inputs;
}

uint64_t DeviceInputs::hash() const {
  uint64_t hash = 0;
  std::vector<std::byte> host;
  for (const Buffer* buffer : {&q_, &k_, &v_, &o_, &d_o_, &logsumexp_}) {
    host.resize(buffer->bytes());
    if (!host.empty()) device_->copy_to_host(host.data(), buffer->data(), host.size());
    hash = checksum(host.data(), host.size(), hash);
  }
  return hash;
}

HostOutputs::HostOutputs(const Problem& problem) : problem_(problem) {
  if (problem.pass == Pass::forward) {
    o_.resize(query_bytes(problem));
    logsumexp_.resize(row_bytes(problem));
  } else {
    dq_.resize(query_bytes(problem));
    dk_.resize(key_bytes(problem));
    dv_.resize(key_bytes(problem));
  }
}

Outputs HostOutputs::view() {
  Outputs outputs;
  if (problem_.pass == Pass::forward) {
    outputs.o = query_view<void>(o_.data(), problem_);
    outputs.logsumexp = reinterpret_cast<float*>(logsumexp_.data());
  } else {
    outputs.dq = query_view<void>(dq_.data(), problem_);
    outputs.dk = key_view<void>(dk_.data(), problem_);
    outputs.dv = key_view<void>(dv_.data(), problem_);
  }
  return outputs;
}

DeviceOutputs::DeviceOutputs(Device& device, const Problem& problem)
    : device_(&device), problem_(problem) {
  if (problem.pass == Pass::forward) {
    o_ = device.allocate(query_bytes(problem), MemoryUse::output);
    logsumexp_ = device.allocate(row_bytes(problem), MemoryUse::output);
  } else {
    dq_ = device.allocate(query_bytes(problem), MemoryUse::output);
    dk_ = device.allocate(key_bytes(problem), MemoryUse::output);
    dv_ = device.allocate(key_bytes(problem), MemoryUse::output);
  }
}

Outputs DeviceOutputs::view() const {
  Outputs outputs;
  if (problem_.pass == Pass::forward) {
    outputs.o = query_view<void>(o_.data(), problem_);
    outputs.logsumexp = logsumexp_.as<float>();
  } else {
    outputs.dq = query_view<void>(dq_.data(), problem_);
    outputs.dk = key_view<void>(dk_.data(), problem_);
    outputs.dv = key_view<void>(dv_.data(), problem_);
  }
  return outputs;
}

void DeviceOutputs::poison() {
  for (const Buffer* buffer : {&o_, &logsumexp_, &dq_, &dk_, &dv_}) {
    if (buffer->bytes() > 0) device_->poison(buffer->data(), buffer->bytes());
  }
}

HostOutputs DeviceOutputs::to_host() const {
  HostOutputs host(problem_);
  const auto fetch = [this](std::vector<std::byte>& to, const Buffer& from) {
    if (from.bytes() > 0) device_->copy_to_host(to.data(), from.data(), from.bytes());
  };
  fetch(host.o_, o_);
  fetch(host.logsumexp_, logsumexp_);
  fetch(host.dq_, dq_);
  fetch(host.dk_, dk_);
  fetch(host.dv_, dv_);
  return host;
}

int64_t DeviceOutputs::unwritten_elements() const {
  const HostOutputs host = to_host();
  const auto element = static_cast<size_t>(element_size(problem_.dtype));
  return poisoned_elements(host.logsumexp_, sizeof(float)) + poisoned_elements(host.o_, element) +
         poisoned_elements(host.dq_, element) + poisoned_elements(host.dk_, element) +
         poisoned_elements(host.dv_, element);
}

}  // namespace flashbench
