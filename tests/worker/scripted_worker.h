// A worker that does what a test tells it. WorkerProcess starts this test program again with the
// verb `worker`; it then plays a Script if there is one, and else is the real worker.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace flashbench {

// What a worker does with one request. First it prints `print`, and reports the providers that are
// at work and that left something running.
struct Step {
  enum class Act {
    answer,             // sends `text` as a message
    send_bytes,         // sends `text` as it is, then waits to be killed
    answer_twice,       // sends `text` as two messages
    answer_another,     // sends `text` as the answer to the request before
    send_half,          // sends half of a message, then exits
    exit,               // with the code `number`
    die,                // of the signal `number`
    die_with_daemon,    // the same, after it started a child that hangs in a session of its own
    close_socket,       // then waits to be killed
    answer_when_asked,  // sends `text` once it is asked to end soon
    say_whether_asked,  // sends "asked" if it is by now, else "not asked"
    // These send `text` as a message, so that a test knows that they are at it, and then hang:
    hang,
    hang_with_child,   // which hangs too
    hang_with_daemon,  // a child that hangs in a session of its own
    hang_in_half,      // of another message
    hang_in_a_step,    // of rank `number`: step 3 of 4
  };
  Act act = Act::answer;
  std::string text{};
  int number = 0;
  int at_work = -1, left_running = -1;
  std::string print{};
};

// The steps of all workers that are started during its lifetime, one for each request that any of
// them receives, in order. A worker exits with code 99 if there is no step left.
class Script {
 public:
  explicit Script(const std::vector<Step>& steps);
  ~Script();
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  struct Received {
    pid_t worker = 0;
    std::string request;
  };
  std::vector<Received> received() const;
  pid_t child() const;  // of a worker that has one

 private:
  TemporaryFolder folder_;
};

// Waits until this process has ended, for a minute at most. Returns whether it has.
bool has_ended(pid_t pid);

}  // namespace flashbench
