#include "program/staging.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

namespace flashbench {

Staging::Staging() : fd_(memfd_create("flashbench-staging", MFD_CLOEXEC)) {
  if (fd_ < 0)
    throw std::system_error(errno, std::generic_category(), "cannot create shared memory");
  path_ = fmt::format("/proc/{}/fd/{}", getpid(), fd_);
}

Staging::~Staging() {
  if (data_ != nullptr) munmap(data_, bytes_);
  close(fd_);
}

void Staging::reserve(size_t bytes) {
  if (bytes <= bytes_) return;
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw std::bad_alloc();
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  data_ = mapped;
  bytes_ = bytes;
}

}  // namespace flashbench
