#include "device/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "attention/error.h"

namespace flashbench {

namespace {

// An open file descriptor; closed, if still open, when it goes.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  int close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd);
  }

 private:
  int fd_;
};

// Removes the file unless told to keep it.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    if (!kept_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  std::filesystem::path path_;
  bool kept_ = false;
};

}  // namespace

void throw_file_error(const std::filesystem::path& path, std::string_view action, int error) {
  throw FileError(fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(error)));
}

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file_error(path, "write", errno);
    content.remove_prefix(static_cast<size_t>(written));
  }
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw FileError(
        fmt::format("{}: cannot make this folder: {}", folder.string(), error.message()));
  }
}

void sync_folder(const std::filesystem::path& given) {
  const std::filesystem::path folder = given.empty() ? "." : given;
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) throw_file_error(folder, "open", errno);
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) throw_file_error(folder, "sync", errno);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  TemporaryFile temporary(folder / fmt::format(".{}.{}.tmp", path.filename().string(), ::getpid()));
  Descriptor file(::open(temporary.path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) {
    const int error = errno;
    temporary.keep();  // nothing of ours is there
    throw_file_error(path, "write", error);
  }
  write_all(file.get(), content, path);
  if (::fsync(file.get()) != 0) throw_file_error(path, "sync", errno);
  if (file.close() != 0) throw_file_error(path, "close", errno);
  if (std::rename(temporary.path().c_str(), path.c_str()) != 0)
    throw_file_error(path, "rename", errno);
  temporary.keep();
  sync_folder(folder);
}

}  // namespace flashbench
