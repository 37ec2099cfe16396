// From what went wrong to a message on stderr and an exit code.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace flashbench {

namespace exit_codes {
inline constexpr int kOk = 0;
inline constexpr int kRegression = 1;
inline constexpr int kUsage = 2;
inline constexpr int kVerificationFailed = 3;
inline constexpr int kCaseFailed = 4;
inline constexpr int kBaseline = 5;
inline constexpr int kNoDevice = 6;
inline constexpr int kFile = 7;
}  // namespace exit_codes

// The exit codes with what they mean, and as one text for --help.
std::vector<std::pair<std::string, std::string>> exit_code_meanings();
std::string exit_code_help();

// Runs `work` and returns its exit code, or that of what it threw, explained on stderr.
int run_and_explain(const std::function<int()>& work, const CLI::App& app);

}  // namespace flashbench
