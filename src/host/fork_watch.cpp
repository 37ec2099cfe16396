#include "host/fork_watch.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <system_error>

namespace flashbench {

namespace {

struct Returned {
  std::atomic<const void*> owner;  // null: no child has returned
  std::atomic<const char*> function;
};
static_assert(std::atomic<const void*>::is_always_lock_free);  // else processes could not share it

// Asking for the process's number instead would be a system call in every timed run.
volatile bool* is_parent = nullptr;  // in memory that is false in children
Returned* returned = nullptr;        // in memory that children share

template <typename T>
T* mapped(int flag) {
  void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, flag | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "cannot map memory");
  }
  return new (memory) T{};
}

bool start_watching() {
  returned = mapped<Returned>(MAP_SHARED);
  bool* parent = mapped<bool>(MAP_PRIVATE);
  *parent = true;
  is_parent = parent;
  // Also where a plugin makes the system call itself; Linux has it since 4.14.
  madvise(parent, sizeof(*parent), MADV_WIPEONFORK);
  pthread_atfork(nullptr, nullptr, [] { *is_parent = false; });
  return true;
}

}  // namespace

void watch_forks() {
  [[maybe_unused]] static const bool watching = start_watching();
}

bool is_forked_child() {
  return is_parent != nullptr && !*is_parent;
}

void end_forked_child(const void* owner, const char* function) {
  returned->function = function;
  returned->owner = owner;
  _exit(0);
}

const char* take_returned_child(const void* owner) {
  if (returned->owner != owner) return nullptr;
  const char* function = returned->function;
  returned->owner = nullptr;
  return function;
}

}  // namespace flashbench
