// One tensor in device memory, laid out by a placement, with guard bands. The memory before, after
// and between its elements is poison, so that a kernel that writes there is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "attention/tensors.h"
#include "device/device.h"
#include "device/page_owners.h"

namespace flashbench {

class PlacedTensor {
 public:
  // Every placement has a margin of at least this many bytes before the tensor and after it.
  static constexpr size_t kMargin = 256;

  PlacedTensor() = default;  // no tensor

  // The devices that share a problem, and which rows each has.
  struct Ranks {
    std::vector<OwnedRows> rows;
    int count;
  };

  // A tensor shaped like `dense`, the view of its host memory; it starts poisoned.
  //   contiguous  the strides of `dense`, the first element on an aligned address
  //   strided     gaps after every head, row and batch: a row takes three times the room of its
  //               heads, as in a packed QKV tensor; all offsets are multiples of 8 elements,
  //               or of 16 bytes
  //   offset      the strides of `dense`, the first element one past an aligned address
  // With `ranks`, a row is in the memory of the rank that has it, where the device has several; the
  // margin before the tensor is then a page.
  PlacedTensor(Device&, const ConstTensorView& dense, Placement, MemoryUse,
               const std::optional<Ranks>& ranks = {});

  bool empty() const { return device_ == nullptr; }
  const TensorView& view() const { return view_; }

  // Copy from and to host memory with the layout of `dense`.
  void write(const void* dense);
  void read(void* dense) const;

  // Poisons elements and guard bands.
  void poison();

  // Flips the sign of every element.
  void negate();

  // Hashes every byte, guard bands included.
  uint64_t hash(uint64_t seed) const;

  // The number of bytes outside the elements that are no longer poison.
  int64_t damaged_guard_bytes() const;

  // The number of elements that are still poison: nothing wrote them. With `rows`, only of each
  // request's own rows: the others are padding.
  int64_t unwritten_elements(const RequestRows* rows = nullptr) const;

  // The size of the tensor's memory beyond its elements.
  int64_t guard_bytes() const;

 private:
  std::vector<std::byte> snapshot(size_t first, size_t bytes) const;
  size_t element_bytes() const { return static_cast<size_t>(element_size(view_.dtype)); }
  size_t first_byte() const;
  bool dense() const;

  // Calls row(byte offset in the buffer, byte offset in dense host memory) for every row, or for
  // each request's own.
  template <typename Row>
  void for_rows(const Row& row, const RequestRows* own = nullptr) const;

  Device* device_ = nullptr;
  Buffer buffer_;
  TensorView view_;        // of the elements in buffer_
  ConstTensorView dense_;  // the strides of the host's memory
};

}  // namespace flashbench
