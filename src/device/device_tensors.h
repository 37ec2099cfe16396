// The tensors of one problem in device memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/host_memory.h"
#include "attention/tensors.h"
#include "device/device.h"
#include "device/placed_tensor.h"

namespace flashbench {

// A problem's inputs on the device, copied from the host. The logsumexp has no strides: it is dense
// in every placement. So is the block table of a paged problem, but for a gap behind each row where
// the placement is strided. The factors of e4m3 are dense. Where several GPUs share the problem,
// rows of tokens are in the memory of the GPU that has them; where they split keys, rows of K and
// V.
class DeviceInputs {
 public:
  DeviceInputs(Device& device, const Problem& problem, Placement placement, const Inputs& host);

  Inputs view() const;
  void refill(const Inputs& host);

  // The same of Q and K alone.
  void refill_q_and_k(const Inputs& host);

  // Poisons all but the block table and the factors.
  void poison();

  // Negates the input in which the outputs are linear: V, or dO for the backward pass.
  void negate();

  // Returns a hash over every byte, gaps included. A change shows that a provider wrote to its
  // inputs.
  uint64_t hash() const;

  int64_t guard_bytes() const;

 private:
  std::array<const PlacedTensor*, 10> tensors() const;

  Problem problem_;
  PlacedTensor q_, k_, v_, o_, d_o_, logsumexp_, table_;
  PlacedTensor q_descales_, k_descales_, v_descales_;
};

// Output tensors in host memory, dense. Padding is poison, whatever a provider wrote there.
class HostOutputs {
 public:
  // Allocates uninitialised outputs. `logsumexp` is false for a forward pass whose provider returns
  // none; O is in the problem's output_dtype unless `o` says otherwise.
  explicit HostOutputs(const Problem& problem, bool logsumexp = true,
                       const std::optional<OutputFormat>& o = std::nullopt);
  Outputs view();

  bool operator==(const HostOutputs&) const = default;  // bit for bit

 private:
  friend class DeviceOutputs;
  void forget_padding();

  Problem problem_;
  OutputFormat o_format_;
  HostVector<std::byte> o_, dq_, dk_, dv_;
  HostVector<std::byte> logsumexp_;
};

// A problem's outputs on the device, where DeviceInputs would be; they start poisoned.
class DeviceOutputs {
 public:
  // `logsumexp`, `o`: see HostOutputs.
  DeviceOutputs(Device& device, const Problem& problem, Placement placement, bool logsumexp = true,
                const std::optional<OutputFormat>& o = std::nullopt);

  Outputs view() const;
  void poison();
  // The same with the sign of every element flipped, which no longer counts as unwritten.
  void poison_with_flipped_signs();
  HostOutputs to_host() const;

  // Negates the outputs that negated inputs negate: all but the logsumexp.
  void negate();

  // Returns a hash over every byte, guard bands included. An equal hash means the same bits and no
  // damage.
  uint64_t hash() const;

  // The number of elements that are still poison: nothing wrote them. Padding does not count.
  int64_t unwritten_elements() const;

  // A sentence about the first tensor with writes around or between its elements; empty if there is
  // none.
  std::string damage() const;

  int64_t guard_bytes() const;

 private:
  Problem problem_;
  OutputFormat o_format_;
  PlacedTensor o_, logsumexp_, dq_, dk_, dv_;
  PlacedTensor o_descale_;  // of O in e4m3, which a provider reads
};

}  // namespace flashbench
