// Turns exceptions into messages on stderr and exit codes.
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

// The exit codes with their meanings, and as one text for --help.
std::vector<std::pair<std::string, std::string>> exit_code_meanings();
std::string exit_code_help();

// Runs `work` and returns its exit code. An exception is explained on stderr and gives its exit
// code.
int run_and_explain(const std::function<int()>& work, const CLI::App& app);

}  // namespace flashbench
