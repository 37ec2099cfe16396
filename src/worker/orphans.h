// What outlives the worker that has started it: this process inherits it, and ends it.
#pragma once

#include <sys/types.h>

namespace flashbench {

// Makes this process the parent of orphans, and marks the environment of all that it starts from
// now on. As the first process of a container it would inherit those of others, too.
void adopt_orphans();

// Kills and reaps the children of this process that have the mark and are no workers, with all that
// they have started.
void end_orphans();
void add_worker(pid_t);
void remove_worker(pid_t);

}  // namespace flashbench
