// Memory that another process opens as a file. Copies between the two processes go through it.
#pragma once

#include <cstddef>
#include <string>

namespace flashbench {

class Staging {
 public:
  Staging();
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Makes room for this many bytes at data(). Throws std::bad_alloc.
  void reserve(size_t bytes);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }  // valid while this process lives

 private:
  int fd_ = -1;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  std::string path_;
};

}  // namespace flashbench
