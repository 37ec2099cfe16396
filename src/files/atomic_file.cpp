#include "files/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>

#include "attention/error.h"

namespace flashbench {

namespace {

// An open file descriptor; the destructor closes it if it is still open.
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

// A new file in a folder, which is removed unless told to keep it. Its name is random: processes of
// other containers or machines, which write to the folder, too, may have the same number.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& folder) {
    std::random_device random;
    do {
      path_ = folder / fmt::format(".flashbench.{:08x}{:08x}.tmp", random(), random());
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd_ < 0 && errno == EEXIST);
    error_ = fd_ < 0 ? errno : 0;
  }
  ~TemporaryFile() {
    if (fd_ >= 0 && !kept_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return fd_; }  // for the caller to close
  int error() const { return error_; }    // why there is no file; else 0
  void keep() { kept_ = true; }

 private:
  std::filesystem::path path_;
  int fd_ = -1, error_ = 0;
  bool kept_ = false;
};

constexpr int kMostLinks = 40;  // in one path, the kernel's own limit

// The file that a path leads to.
struct Destination {
  std::filesystem::path path;
  std::optional<struct stat> there;  // empty if the file does not exist yet
  bool special = false;              // not a regular file: written to, not replaced
};

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// Links in /proc lead to open files, whatever name they show: /dev/stdout, /dev/fd/63.
bool is_in_proc(const std::filesystem::path& path) {
  struct statfs system {};
  return ::statfs(folder_of(path).c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

// Follows links one by one, because the last one may lead to a file that does not exist yet.
Destination destination(const std::filesystem::path& path) {
  std::filesystem::path file = path;
  for (int link = 0; link <= kMostLinks; ++link) {
    struct stat found {};
    if (::lstat(file.c_str(), &found) != 0) {
      if (errno != ENOENT) throw_file_error(path, "write", errno);
      return {file, std::nullopt, false};
    }
    if (!S_ISLNK(found.st_mode)) return {file, found, !S_ISREG(found.st_mode)};
    if (is_in_proc(file)) {
      if (::stat(file.c_str(), &found) != 0) throw_file_error(path, "write", errno);
      return {file, found, true};
    }
    std::error_code error;
    file = folder_of(file) / std::filesystem::read_symlink(file, error);
    if (error) throw_file_error(path, "write", error.value());
  }
  throw_file_error(path, "write", ELOOP);
}

void require_access(const std::filesystem::path& path, int mode,
                    const std::filesystem::path& named) {
  if (::faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) != 0) {
    throw_file_error(named, "write", errno);
  }
}

// `named` is the path in messages.
void require_writable(const Destination& to, const std::filesystem::path& named) {
  if (to.there) {
    constexpr mode_t kAnyMayWrite = S_IWUSR | S_IWGRP | S_IWOTH;
    if (S_ISDIR(to.there->st_mode)) throw_file_error(named, "write", EISDIR);
    if ((to.there->st_mode & kAnyMayWrite) == 0) throw_file_error(named, "write", EACCES);
    require_access(to.path, W_OK, named);
  }
  if (!to.special) require_access(folder_of(to.path), W_OK | X_OK, named);
}

void write_through(const std::filesystem::path& to, std::string_view content,
                   const std::filesystem::path& named) {
  Descriptor file(::open(to.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (file.get() < 0) throw_file_error(named, "write", errno);
  write_all(file.get(), content, named);
  if (file.close() != 0) throw_file_error(named, "close", errno);
}

void replace(const Destination& to, std::string_view content, const std::filesystem::path& named) {
  const std::filesystem::path folder = folder_of(to.path);
  TemporaryFile temporary(folder);
  if (temporary.error() != 0) throw_file_error(named, "write", temporary.error());
  Descriptor file(temporary.descriptor());
  if (to.there) {
    // Changing the owner needs privileges that few processes have, so that it may fail. The mode
    // must be kept in any case.
    if (::fchown(file.get(), to.there->st_uid, to.there->st_gid) != 0) errno = 0;
    if (::fchmod(file.get(), to.there->st_mode & 07777) != 0) {
      throw_file_error(named, "keep the mode of", errno);
    }
  }
  write_all(file.get(), content, named);
  if (::fsync(file.get()) != 0) throw_file_error(named, "sync", errno);
  if (file.close() != 0) throw_file_error(named, "close", errno);
  if (std::rename(temporary.path().c_str(), to.path.c_str()) != 0) {
    throw_file_error(named, "rename", errno);
  }
  temporary.keep();
  sync_folder(folder);
}

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
        fmt::format("{}: cannot create this folder: {}", folder.string(), error.message()));
  }
}

void sync_folder(const std::filesystem::path& given) {
  const std::filesystem::path folder = given.empty() ? "." : given;
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) throw_file_error(folder, "open", errno);
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) throw_file_error(folder, "sync", errno);
}

void require_writable(const std::filesystem::path& path) {
  require_writable(destination(path), path);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  const Destination to = destination(path);
  require_writable(to, path);
  if (to.special) {
    write_through(to.path, content, path);
  } else {
    replace(to, content, path);
  }
}

}  // namespace flashbench
