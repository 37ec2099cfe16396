// What the command line has, for those that describe it: completions, the manual page, errors.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace flashbench {

// Those that `--help` shows, in its order; the verb `worker` is none of them.
std::vector<const CLI::App*> shown_verbs(const CLI::App& app);

// As they are typed, short ones first: "-c", "--config"; none for a positional argument.
std::vector<std::string> names_of(const CLI::Option&);

}  // namespace flashbench
