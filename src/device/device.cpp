#include "device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "attention/tensors.h"
#include "files/checksum.h"

namespace flashbench {

namespace {

constexpr size_t kChunkBytes = size_t{4} << 20;  // per copy through the host

}  // namespace

Buffer::Buffer(Device& device, size_t bytes, MemoryUse use, const std::vector<OwnedBytes>& owned)
    : device_(&device), bytes_(bytes), use_(use) {
  if (bytes == 0) return;
  data_ = owned.empty() ? device.raw_allocate(bytes) : device.raw_allocate_owned(bytes, owned);
  if (data_ == nullptr) {
    throw OutOfMemory(fmt::format("{} has no room for {:.1f} MiB beside the {:.1f} MiB in use",
                                  device.info().name, static_cast<double>(bytes) / (1 << 20),
                                  static_cast<double>(device.used().total()) / (1 << 20)));
  }
  device.account(use, static_cast<int64_t>(bytes));
  device.poison(data_, bytes);
}

void Buffer::release() {
  if (data_ == nullptr) return;
  device_->raw_free(data_);
  device_->account(use_, -static_cast<int64_t>(bytes_));
  data_ = nullptr;
}

void Buffer::swap(Buffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(use_, other.use_);
}

void flip_signs(std::span<std::byte> values, size_t element_bytes) {
  for (size_t i = element_bytes - 1; i < values.size(); i += element_bytes) {
    values[i] ^= std::byte{0x80};
  }
}

template <typename Chunk>
void Device::for_chunks(const void* data, size_t bytes, const Chunk& chunk) {
  std::vector<std::byte> piece(std::min(bytes, kChunkBytes));
  for (size_t done = 0; done < bytes; done += piece.size()) {
    const std::span part(piece.data(), std::min(piece.size(), bytes - done));
    copy_to_host(part.data(), static_cast<const std::byte*>(data) + done, part.size());
    chunk(done, part);
  }
}

uint64_t Device::hash(const void* data, size_t bytes, uint64_t seed) {
  for_chunks(data, bytes, [&](size_t, std::span<std::byte> part) {
    seed = checksum(part.data(), part.size(), seed);
  });
  return seed;
}

int64_t Device::poisoned_elements(const void* data, int64_t elements, size_t element_bytes) {
  static constexpr std::array<unsigned char, sizeof(float)> kPattern{kPoisonByte, kPoisonByte,
                                                                     kPoisonByte, kPoisonByte};
  int64_t count = 0;
  for_chunks(data, static_cast<size_t>(elements) * element_bytes,
             [&](size_t, std::span<std::byte> part) {
               for (size_t i = 0; i < part.size(); i += element_bytes) {
                 count += std::memcmp(&part[i], kPattern.data(), element_bytes) == 0 ? 1 : 0;
               }
             });
  return count;
}

void Device::flip_signs(void* data, int64_t elements, size_t element_bytes) {
  for_chunks(data, static_cast<size_t>(elements) * element_bytes,
             [&](size_t at, std::span<std::byte> part) {
               flashbench::flip_signs(part, element_bytes);
               copy_to_device(static_cast<std::byte*>(data) + at, part.data(), part.size());
             });
}

void Device::account(MemoryUse use, int64_t bytes) {
  switch (use) {
    case MemoryUse::input:
      used_.input += bytes;
      break;
    case MemoryUse::output:
      used_.output += bytes;
      break;
    case MemoryUse::workspace:
      used_.workspace += bytes;
      break;
  }
  if (used_.total() > peak_.total()) peak_ = used_;
}

}  // namespace flashbench
