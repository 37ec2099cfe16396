#include "files/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "attention/error.h"
#include "files/atomic_file.h"

namespace flashbench {

namespace {

constexpr int kWriterMilliseconds = 1000;  // to wait for a writer to open a pipe's other end
constexpr size_t kChunk = size_t{1} << 16;

// A file open for reading.
class Input {
 public:
  explicit Input(const std::filesystem::path& path) : path_(path) {
    if (path == "-") return;
    // Without O_NONBLOCK, opening a pipe that nobody writes to would never return.
    fd_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd_ < 0) throw_file_error(path, "read", errno);
    struct stat found {};
    is_pipe_ = ::fstat(fd_, &found) == 0 && S_ISFIFO(found.st_mode);
    pollfd writer{fd_, POLLIN, 0};
    if (is_pipe_) ::poll(&writer, 1, kWriterMilliseconds);
    ::fcntl(fd_, F_SETFL, 0);
  }
  ~Input() {
    if (fd_ > STDIN_FILENO) ::close(fd_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  bool is_pipe() const { return is_pipe_; }

  // Returns 0 at the end, and for a pipe whose other end nobody has open.
  size_t read(char* to, size_t bytes) const {
    while (true) {
      const ssize_t count = ::read(fd_, to, bytes);
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR) throw_file_error(path_, "read", errno);
    }
  }

 private:
  const std::filesystem::path& path_;
  int fd_ = STDIN_FILENO;
  bool is_pipe_ = false;
};

}  // namespace

std::string read_file(const std::filesystem::path& path, size_t most_bytes) {
  const Input input(path);
  std::string text;
  while (true) {
    const size_t before = text.size();
    text.resize(before + kChunk);
    const size_t count = input.read(text.data() + before, kChunk);
    text.resize(before + count);
    if (text.size() > most_bytes) {
      throw FileError(
          fmt::format("{}: cannot read: larger than {} bytes", path.string(), most_bytes));
    }
    if (count == 0) break;
  }
  if (text.empty() && input.is_pipe()) {
    throw FileError(fmt::format("{}: cannot read: this pipe has no writer", path.string()));
  }
  return text;
}

}  // namespace flashbench
