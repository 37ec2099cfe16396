// The program's exit codes: a contract (docs/design.md). cli/errors.cpp has their meanings.
#pragma once

namespace flashbench::exit_codes {

inline constexpr int kOk = 0;
inline constexpr int kRegression = 1;
inline constexpr int kUsage = 2;
inline constexpr int kVerificationFailed = 3;
inline constexpr int kCaseFailed = 4;
inline constexpr int kBaseline = 5;
inline constexpr int kNoDevice = 6;
inline constexpr int kFile = 7;
inline constexpr int kSignal = 128;  // and the signal's number: 130 for SIGINT, 143 for SIGTERM

// Of a process whose --program has failed for good. Mostly a worker's, whose sweep goes on.
inline constexpr int kProgramFailed = 70;

}  // namespace flashbench::exit_codes
