// The verbs and options of the command line, for completions, the manual page and errors.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace flashbench {

// The verbs that `--help` shows, in its order; hidden ones such as `worker` are left out.
std::vector<const CLI::App*> shown_verbs(const CLI::App& app);

// The names as typed, short ones first: "-c", "--config"; none for a positional argument.
std::vector<std::string> names_of(const CLI::Option&);

}  // namespace flashbench
