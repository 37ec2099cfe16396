// The manual page, generated from the command line's description.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace flashbench {

// Returns flashbench(1) in man(7) format, for a program of this version.
std::string manual_page(const CLI::App& app, const std::string& version);

}  // namespace flashbench
