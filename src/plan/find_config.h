// Where a config is that is named on the command line: a file, or one of those that ship with the
// program.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace flashbench {

// The folders of the shipped configs that are there: PREFIX/share/flashbench/configs of an
// installed binary PREFIX/bin/flashbench, and configs/ of the repository that a build folder lies
// in, as build/cpu/bin/flashbench does.
std::vector<std::filesystem::path> config_folders(const std::filesystem::path& binary);

// The same for this program.
std::vector<std::filesystem::path> config_folders();

// `given` itself if it is a file, or "-"; else the shipped config of this name, with or without
// ".json". Throws FileError, with where it looked and what is there.
std::filesystem::path find_config(
    const std::string& given, const std::vector<std::filesystem::path>& folders = config_folders());

// That rule, for --help.
std::string config_help();

}  // namespace flashbench
