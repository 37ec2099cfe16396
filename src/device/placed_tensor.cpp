#include "device/placed_tensor.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace flashbench {

namespace {

// In elements: a vector of 16 bytes of 16-bit values, or of bytes, stays aligned.
int64_t gap_of(Dtype dtype) {
  return element_size(dtype) == 1 ? 2 * kHeadDimStep : kHeadDimStep;
}
constexpr int64_t kPackedTensors = 3;  // Q, K and V beside each other

// Adds gaps after heads, rows and batches, in the order of the dimensions of the dense tensor.
TensorView strided(TensorView t) {
  const bool heads_inside = t.head_stride < t.row_stride;
  const int64_t gap = gap_of(t.dtype);
  const auto room = [=](int64_t elements) { return kPackedTensors * elements + gap; };
  if (heads_inside) {
    t.head_stride = t.head_dim + gap;
    t.row_stride = room(t.heads * t.head_stride);
    t.batch_stride = t.ragged == nullptr ? t.length * t.row_stride + gap : 0;
  } else {
    t.row_stride = t.head_dim + gap;
    t.head_stride = t.length * t.row_stride + gap;
    t.batch_stride = room(t.heads * t.head_stride);
  }
  return t;
}

// Distance from the first element to the end of the last, in elements.
int64_t extent(const TensorView& t) {
  if (t.elements() == 0) return 0;
  const int64_t last_row = t.ragged == nullptr ? t.offset(t.batch - 1, 0, t.length - 1)
                                               : (t.all_rows() - 1) * t.row_stride;
  return last_row + (t.heads - 1) * t.head_stride + t.head_dim;
}

int64_t damaged(const std::vector<std::byte>& bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](std::byte b) { return b != std::byte{kPoisonByte}; });
}

}  // namespace

PlacedTensor::PlacedTensor(Device& device, const ConstTensorView& dense, Placement placement,
                           MemoryUse use, const std::optional<Ranks>& ranks)
    : device_(&device),
      view_{nullptr,        dense.dtype,        dense.batch,       dense.heads,      dense.length,
            dense.head_dim, dense.batch_stride, dense.head_stride, dense.row_stride, dense.ragged},
      dense_(dense) {
  if (placement == Placement::strided) view_ = strided(view_);
  // A device that has fewer ranks keeps all rows: none of them shares the problem there.
  const bool shared = ranks && ranks->count <= device.info().ranks;
  const size_t shift = placement == Placement::offset ? element_bytes() : 0;
  const size_t begin = (shared ? kSharedPageBytes : kMargin) + shift;
  const size_t bytes = static_cast<size_t>(extent(view_)) * element_bytes();
  const std::vector<OwnedBytes> owned =
      shared ? owned_bytes(view_, begin, ranks->rows) : std::vector<OwnedBytes>{};
  buffer_ = device.allocate(begin + bytes + kMargin, use, owned);
  view_.data = buffer_.as<std::byte>() + begin;
}

size_t PlacedTensor::first_byte() const {
  return static_cast<size_t>(static_cast<const std::byte*>(view_.data) - buffer_.as<std::byte>());
}

bool PlacedTensor::dense() const {
  return view_.batch_stride == dense_.batch_stride && view_.head_stride == dense_.head_stride &&
         view_.row_stride == dense_.row_stride;
}

std::vector<std::byte> PlacedTensor::snapshot(size_t first, size_t bytes) const {
  std::vector<std::byte> copy(bytes);
  device_->copy_to_host(copy.data(), buffer_.as<std::byte>() + first, bytes);
  return copy;
}

template <typename Row>
void PlacedTensor::for_rows(const Row& row, const RequestRows* own) const {
  for (int64_t b = 0; b < view_.batch; ++b) {
    const int64_t rows = own == nullptr ? view_.rows(b) : own->count(b);
    for (int64_t h = 0; h < view_.heads; ++h) {
      for (int64_t i = 0; i < rows; ++i) {
        row(first_byte() + static_cast<size_t>(view_.offset(b, h, i)) * element_bytes(),
            static_cast<size_t>(dense_.offset(b, h, i)) * element_bytes());
      }
    }
  }
}

void PlacedTensor::write(const void* dense_data) {
  if (empty() || view_.elements() == 0) return;
  const size_t bytes = static_cast<size_t>(view_.elements()) * element_bytes();
  if (dense()) return device_->copy_to_device(view_.data, dense_data, bytes);
  std::vector<std::byte> image(buffer_.bytes(), std::byte{kPoisonByte});
  const size_t row_bytes = static_cast<size_t>(view_.head_dim) * element_bytes();
  for_rows([&](size_t at, size_t from) {
    std::memcpy(image.data() + at, static_cast<const std::byte*>(dense_data) + from, row_bytes);
  });
  device_->copy_to_device(buffer_.data(), image.data(), image.size());
}

void PlacedTensor::read(void* dense_data) const {
  if (empty() || view_.elements() == 0) return;
  const size_t bytes = static_cast<size_t>(view_.elements()) * element_bytes();
  if (dense()) return device_->copy_to_host(dense_data, view_.data, bytes);
  const std::vector<std::byte> image = snapshot(0, buffer_.bytes());
  const size_t row_bytes = static_cast<size_t>(view_.head_dim) * element_bytes();
  for_rows([&](size_t at, size_t to) {
    std::memcpy(static_cast<std::byte*>(dense_data) + to, image.data() + at, row_bytes);
  });
}

void PlacedTensor::poison() {
  if (!empty()) device_->poison(buffer_.data(), buffer_.bytes());
}

void PlacedTensor::negate() {
  if (empty() || view_.elements() == 0) return;
  if (dense()) return device_->flip_signs(view_.data, view_.elements(), element_bytes());
  std::vector<std::byte> image = snapshot(0, buffer_.bytes());
  for_rows([&](size_t at, size_t) {
    flip_signs(std::span(image).subspan(at, static_cast<size_t>(view_.head_dim) * element_bytes()),
               element_bytes());
  });
  device_->copy_to_device(buffer_.data(), image.data(), image.size());
}

int64_t PlacedTensor::unwritten_elements(const RequestRows* rows) const {
  if (empty()) return 0;
  if (dense() && rows == nullptr) {
    return device_->poisoned_elements(view_.data, view_.elements(), element_bytes());
  }
  const std::vector<std::byte> image = snapshot(0, buffer_.bytes());
  const std::vector<std::byte> poison(element_bytes(), std::byte{kPoisonByte});
  int64_t count = 0;
  const auto count_row = [&](size_t at, size_t) {
    for (int64_t i = 0; i < view_.head_dim; ++i, at += element_bytes()) {
      count += std::memcmp(&image[at], poison.data(), element_bytes()) == 0 ? 1 : 0;
    }
  };
  for_rows(count_row, rows);
  return count;
}

uint64_t PlacedTensor::hash(uint64_t seed) const {
  return empty() ? seed : device_->hash(buffer_.data(), buffer_.bytes(), seed);
}

int64_t PlacedTensor::damaged_guard_bytes() const {
  if (empty()) return 0;
  if (dense()) {
    const size_t end = first_byte() + static_cast<size_t>(view_.elements()) * element_bytes();
    return damaged(snapshot(0, first_byte())) + damaged(snapshot(end, buffer_.bytes() - end));
  }
  std::vector<std::byte> image = snapshot(0, buffer_.bytes());
  const size_t row_bytes = static_cast<size_t>(view_.head_dim) * element_bytes();
  for_rows([&](size_t at, size_t) { std::memset(image.data() + at, kPoisonByte, row_bytes); });
  return damaged(image);
}

int64_t PlacedTensor::guard_bytes() const {
  return static_cast<int64_t>(buffer_.bytes()) -
         view_.elements() * static_cast<int64_t>(element_bytes());
}

}  // namespace flashbench
