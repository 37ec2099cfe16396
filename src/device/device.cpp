#include "device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace flashbench {

std::string_view name(DeviceKind kind) {
  return kind == DeviceKind::cpu ? "cpu" : "cuda";
}

Buffer::Buffer(Device& device, size_t bytes, MemoryUse use)
    : device_(&device), bytes_(bytes), use_(use) {
  if (bytes == 0) return;
  data_ = device.raw_allocate(bytes);
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
