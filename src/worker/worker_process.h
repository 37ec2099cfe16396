// The sweep's side of one worker process: starts it, sends it requests, and ends it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "report/record.h"
#include "worker/channel.h"
#include "worker/worker.h"

namespace flashbench {

// The end of a worker that did not answer. The worker is dead.
struct AbnormalEnd {
  Status status = Status::crashed;  // or timeout, out_of_memory
  std::string reason;  // e.g. "its worker was killed by signal 11 (Segmentation fault)"
};

struct Answer {
  std::string text;
  bool after_deadline = false;  // the answer came only after the worker was asked to end
};

class WorkerProcess {
 public:
  // Starts the worker. Throws std::system_error.
  WorkerProcess();

  // Kills the worker and all that it has started.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Sends a request and waits for the answer. After `seconds`, or if `interrupted` returns true,
  // asks the worker to end soon; kills it if it does not answer within a grace period of at most 5
  // s.
  std::variant<Answer, AbnormalEnd> ask(const std::string& request, double seconds,
                                        const std::function<bool()>& interrupted);

  // The index of the provider that is, or was last, at work; -1 if none.
  int at_work() const { return memory_->at_work.load(); }

  // The index of the provider that left something running in the worker; -1 if none did.
  int left_running() const { return memory_->left_running.load(); }

 private:
  using Clock = std::chrono::steady_clock;

  void start(int socket, int shared_memory, int output);
  void wait_for_news(Clock::time_point until);
  std::optional<std::string> next_answer();
  void keep_last_words();
  void kill_and_reap();
  bool wait_for_end() const;
  AbnormalEnd end_of(const std::string& otherwise);
  std::string with_last_words(std::string reason) const;

  pid_t pid_ = -1;
  int socket_ = -1, output_ = -1;
  bool closed_ = false;  // the worker's side of the socket
  WorkerMemory* memory_ = nullptr;
  MessageReader reader_;
  uint64_t requests_ = 0;   // sent so far; the last one's number
  std::string last_words_;  // the end of its output
  int64_t oom_kills_before_ = 0;
  int exit_status_ = 0;
};

}  // namespace flashbench
