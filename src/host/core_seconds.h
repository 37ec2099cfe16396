// How much core time a process has had, by Linux's accounting.
#pragma once

#include <sys/types.h>

#include <optional>

namespace flashbench {

// Processor seconds of all its threads; empty if there is no such process.
std::optional<double> process_ran_seconds(pid_t);

// Seconds in which its current threads were ready to run while others ran, summed over threads.
// Empty if the kernel does not record them (/proc/PID/task/*/schedstat).
std::optional<double> process_waited_seconds(pid_t);

}  // namespace flashbench
