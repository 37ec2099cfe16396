// SIGINT and SIGTERM: the first asks the work to end soon, a second one ends the process.
#pragma once

#include <sys/types.h>

namespace flashbench {

// Handles both signals from now on.
void watch_for_interrupts();

bool interrupted();

// Of the signal that came (attention/exit_codes.h); 0 if none did.
int interrupt_exit_code();

// Makes a second signal kill this process group first; 0: none.
void kill_on_second_interrupt(pid_t process_group);

}  // namespace flashbench
