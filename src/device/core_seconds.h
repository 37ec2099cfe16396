// How much of the cores a process has had, as Linux counts it.
#pragma once

#include <sys/types.h>

#include <optional>

namespace flashbench {

// Processor seconds of all its threads; empty where there is no such process.
std::optional<double> process_ran_seconds(pid_t);

// Seconds in which the threads that it has now were ready to run while others ran, summed over
// threads. Empty where the kernel does not keep them (/proc/PID/task/*/schedstat).
std::optional<double> process_waited_seconds(pid_t);

}  // namespace flashbench
