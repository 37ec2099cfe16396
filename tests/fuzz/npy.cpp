#include "files/npy.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "attention/error.h"
#include "attention/problem.h"
#include "fuzz/targets.h"

namespace flashbench::fuzz {

namespace {

// A file in memory with these bytes.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("npy", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      throw std::system_error(errno, std::generic_category(), "memfd");
    }
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace

void npy(std::string_view bytes) {
  const MemoryFile file(bytes);
  try {
    const NpyArray array = read_npy(file.path());
    size_t elements = 1;
    for (const int64_t length : array.shape) elements *= static_cast<size_t>(length);
    const auto dtype = dtype_of(array.type);
    const int64_t element = dtype ? element_size(*dtype) : int64_t{sizeof(int32_t)};
    require(array.data.size() == elements * static_cast<size_t>(element),
            "the data have another size than the shape says");
  } catch (const BadInput&) {
  }
}

}  // namespace flashbench::fuzz
