// Host memory for tensors: it starts uninitialised, since everything in it is written before it is
// read, and is in huge pages where the system lends them, since to touch 64 MiB for the first time,
// a small page after the other, takes as long as to copy them from a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace flashbench {

// Aligned for every type. Throws std::bad_alloc.
void* allocate_host(size_t bytes);
void free_host(void* memory) noexcept;

struct FreeHost {
  void operator()(void* memory) const noexcept { free_host(memory); }
};

// Of an arithmetic type.
template <typename T>
using HostArray = std::unique_ptr<T[], FreeHost>;
template <typename T>
HostArray<T> make_host_array(size_t count) {
  return HostArray<T>(static_cast<T*>(allocate_host(count * sizeof(T))));
}

template <typename T>
struct HostAllocator {
  using value_type = T;

  HostAllocator() = default;
  template <typename U>
  HostAllocator(const HostAllocator<U>&) {}

  T* allocate(size_t count) { return static_cast<T*>(allocate_host(count * sizeof(T))); }
  void deallocate(T* memory, size_t) noexcept { free_host(memory); }

  // What a vector does to elements that it is not told a value of.
  template <typename U>
  void construct(U* element) noexcept {
    ::new (static_cast<void*>(element)) U;
  }

  bool operator==(const HostAllocator&) const = default;
};

// The same as a vector, which grows and compares.
template <typename T>
using HostVector = std::vector<T, HostAllocator<T>>;

}  // namespace flashbench
