// The verbs of the command line, one file each.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "attention/exit_codes.h"

namespace flashbench {

// A verb's input and output.
struct Invocation {
  std::vector<std::string> argv;
  int exit_code = exit_codes::kOk;
};

// Adds the program's global options, and every verb with its options.
void declare_command_line(CLI::App&, Invocation&);

// Each adds its subcommand, whose callback does the work and sets the exit code.
void add_sweep(CLI::App&, Invocation&);
void add_run(CLI::App&, Invocation&);
void add_verify(CLI::App&, Invocation&);
void add_compare(CLI::App&, Invocation&);
void add_report(CLI::App&, Invocation&);
void add_list(CLI::App&, Invocation&);
void add_info(CLI::App&, Invocation&);
void add_tune(CLI::App&, Invocation&);
void add_completion(CLI::App&, Invocation&);
void add_manual(CLI::App&, Invocation&);  // hidden: used by the installation
void add_worker(CLI::App&, Invocation&);  // hidden: started by a sweep

}  // namespace flashbench
