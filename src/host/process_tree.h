// The processes that another process has started.
#pragma once

#include <sys/types.h>

#include <vector>

namespace flashbench {

std::vector<pid_t> children_of(pid_t process);

// Kills the children of a process, their children and so on, whatever their groups and sessions
// are. The process itself should be stopped, so that it starts no more.
void kill_descendants_of(pid_t process);

}  // namespace flashbench
