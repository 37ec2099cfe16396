// What goes on in this process beside the calling thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace flashbench {

// Another thread of this process, or a thread of a process that descends from it.
struct Task {
  pid_t process = 0, thread = 0;
  bool at_work = false;    // running, or waiting for a processor
  double cpu_seconds = 0;  // used so far
};
std::vector<Task> background_tasks();

// Looks at those tasks until none is at work, and none has been since the look before. A sentence
// about what goes on working instead; empty if nothing does. Judged by the processor time that is
// used between the looks, so that a machine that is busy with other things cannot make a task look
// at work. `counts` says which tasks matter; `known`, which were there before: where there is none
// but those and none is at work, one look is enough.
std::string what_goes_on(const std::vector<Task>& known,
                         const std::function<bool(const Task&)>& counts);

}  // namespace flashbench
