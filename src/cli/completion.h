// Shell completion scripts, made by walking the command line's own description.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>

namespace flashbench {

// The script that completes `app`'s verbs, options and their values in "bash", "zsh" or "fish".
// Throws BadInput for any other shell. Values come from what the options say of themselves: the
// choices of CLI::IsMember; files and folders where the type name is FILE or DIR.
std::string completion_script(const CLI::App& app, std::string_view shell);

}  // namespace flashbench
