// The worker's side: what the hidden verb `worker` does until the sweep closes the socket.
#pragma once

#include <atomic>

namespace flashbench {

// File descriptors that a worker finds open.
inline constexpr int kWorkerSocket = 3;
inline constexpr int kWorkerSharedMemory = 4;

// Memory that sweep and worker share. It tells who was at work even after the worker has crashed.
// The wish to end comes this way, and not as a signal, so that a signal from anybody else is what
// it is to any process: its end.
struct WorkerMemory {
  std::atomic<int> at_work, left_running;  // as in Watch
  std::atomic<bool> end_soon;              // the case at work is to be cut short
};

// Answers requests (wire.h) until there are no more; dies when `parent` does. Returns the exit
// code.
int serve(int parent);

}  // namespace flashbench
