// Finds background work of this process, beside the calling thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace flashbench {

// Another thread of this process, or a thread of a descendant process.
struct Task {
  pid_t process = 0, thread = 0;
  bool at_work = false;    // running, or waiting for a processor
  double cpu_seconds = 0;  // used so far
};
std::vector<Task> background_tasks();

// Checks those tasks until none is at work, and none has worked since the previous check. Returns a
// sentence about tasks that keep working instead; empty if there are none. It judges by the
// processor time used between checks, so that other load on the machine cannot make a task look
// busy. `counts` selects the tasks that matter. `known` are the tasks that existed before: if there
// are no others and none is at work, one check is enough.
std::string what_goes_on(const std::vector<Task>& known,
                         const std::function<bool(const Task&)>& counts);

}  // namespace flashbench
