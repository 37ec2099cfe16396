// One tensor in device memory where a placement puts it, with guard bands: what lies before, behind
// and between its elements is poison, and a kernel that writes there shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/tensors.h"
#include "device/device.h"

namespace flashbench {

class PlacedTensor {
 public:
  // Every placement has a margin of this many bytes before the tensor and at least one behind it.
  static constexpr size_t kMargin = 256;

  PlacedTensor() = default;  // no tensor

  // A tensor shaped like `dense`, the view of its host memory; it starts poisoned.
  //   contiguous  the strides of `dense`, the first element on an aligned address
  //   strided     gaps behind every head, row and batch: a row lies in three times the room that
  //   its
  //               heads need, as in a packed QKV tensor; all offsets are multiples of 8 elements
  //   offset      the strides of `dense`, the first element one past an aligned address
  PlacedTensor(Device&, const ConstTensorView& dense, Placement, MemoryUse);

  bool empty() const { return view_.elements() == 0; }
  const TensorView& view() const { return view_; }

  // From and to host memory laid out as `dense` was.
  void write(const void* dense);
  void read(void* dense) const;

  // Elements and guard bands.
  void poison();

  // Flips the sign of every element.
  void negate();

  // Over every byte, guard bands included.
  uint64_t hash(uint64_t seed) const;

  // Bytes outside the elements that are poison no more.
  int64_t damaged_guard_bytes() const;

  // Elements that still are poison: nothing wrote them.
  int64_t unwritten_elements() const;

  // What the tensor takes beyond its elements.
  int64_t guard_bytes() const;

 private:
  std::vector<std::byte> snapshot(size_t first, size_t bytes) const;
  size_t element_bytes() const { return static_cast<size_t>(element_size(view_.dtype)); }
  size_t first_byte() const;
  bool dense() const;

  // Calls row(byte offset in the buffer, byte offset in dense host memory) for every row.
  template <typename Row>
  void for_rows(const Row& row) const;

  Device* device_ = nullptr;
  Buffer buffer_;
  TensorView view_;        // of the elements in buffer_
  ConstTensorView dense_;  // the strides of the host's memory
};

}  // namespace flashbench
