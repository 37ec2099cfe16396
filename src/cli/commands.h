// The verbs of the command line, one file each.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace flashbench {

// What a verb is given and what it gives back.
struct Invocation {
  std::vector<std::string> argv;
  int exit_code = 0;
};

// Adds the program's own options and every verb with its options.
void declare_command_line(CLI::App&, Invocation&);

// Each adds its subcommand; the chosen one's callback does the work and sets the exit code.
void add_sweep(CLI::App&, Invocation&);
void add_run(CLI::App&, Invocation&);
void add_verify(CLI::App&, Invocation&);
void add_compare(CLI::App&, Invocation&);
void add_report(CLI::App&, Invocation&);
void add_list(CLI::App&, Invocation&);
void add_info(CLI::App&, Invocation&);
void add_tune(CLI::App&, Invocation&);
void add_completion(CLI::App&, Invocation&);
void add_manual(CLI::App&, Invocation&);  // hidden: what an installation prints
void add_worker(CLI::App&, Invocation&);  // hidden: what a sweep starts

}  // namespace flashbench
