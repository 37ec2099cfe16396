// The verbs of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

namespace flashbench {

// Those that `--help` shows, in its order; the verb `worker` is none of them.
std::vector<const CLI::App*> shown_verbs(const CLI::App& app);

}  // namespace flashbench
