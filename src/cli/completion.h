// Shell completion scripts, generated from the command line's description.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>

namespace flashbench {

// Returns the script that completes `app`'s verbs, options and their values in "bash", "zsh" or
// "fish". Throws BadInput for any other shell. Values come from the descriptions of the options:
// the choices of CLI::IsMember; files and folders if the type name is FILE or DIR.
std::string completion_script(const CLI::App& app, std::string_view shell);

}  // namespace flashbench
