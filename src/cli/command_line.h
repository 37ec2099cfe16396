// The whole program behind main().
#pragma once

namespace flashbench {

// Parses the command line, runs its verb, explains errors on stderr, and returns the documented
// exit code.
int run_command_line(int argc, char** argv);

}  // namespace flashbench
