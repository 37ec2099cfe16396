#include "attention/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace flashbench {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kWorthHugePages = 2 * kHugePage;

}  // namespace

void* allocate_host(size_t bytes) {
  const bool large = bytes >= kWorthHugePages;
  const size_t whole_pages = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory =
      large ? std::aligned_alloc(kHugePage, whole_pages) : std::malloc(std::max(bytes, size_t{1}));
  if (memory == nullptr) throw std::bad_alloc();
  if (large) madvise(memory, whole_pages, MADV_HUGEPAGE);  // a wish: without them it is slower
  return memory;
}

void free_host(void* memory) noexcept {
  std::free(memory);
}

}  // namespace flashbench
