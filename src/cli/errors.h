// Turns exceptions into messages on stderr and exit codes.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "attention/exit_codes.h"

namespace flashbench {

// The exit codes with their meanings, and as one text for --help.
std::vector<std::pair<std::string, std::string>> exit_code_meanings();
std::string exit_code_help();

// Runs `work` and returns its exit code. An exception is explained on stderr and gives its exit
// code.
int run_and_explain(const std::function<int()>& work, const CLI::App& app);

}  // namespace flashbench
