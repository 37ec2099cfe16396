// The manual page, made by walking the command line's own description.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace flashbench {

// flashbench(1) in the language of man(7), for a program of this version.
std::string manual_page(const CLI::App& app, const std::string& version);

}  // namespace flashbench
