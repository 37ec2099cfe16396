// The worker's side: serves the hidden verb `worker` until the sweep closes the socket.
#pragma once

#include <atomic>

#include "device/step_board.h"

namespace flashbench {

// File descriptors that are open when a worker starts.
inline constexpr int kWorkerSocket = 3;
inline constexpr int kWorkerSharedMemory = 4;

// Memory that sweep and worker share. It shows which provider was at work, and what each of several
// devices was at, even after the worker has crashed. The request to end is a flag here and not a
// signal, so that a signal from elsewhere ends the worker like any other process.
struct WorkerMemory {
  std::atomic<int> at_work, left_running;  // as in Watch
  std::atomic<bool> end_soon;              // ends the current case early
  StepBoard steps;
};
static_assert(sizeof(WorkerMemory) <= 4096);  // limits on the size of files count it as one

// Answers requests (wire.h) until there are no more; dies with `parent`. Returns the exit code.
int serve(int parent);

}  // namespace flashbench
