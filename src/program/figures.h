// Figures in another program's answers, which may be anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "program/process.h"

namespace flashbench {

// The answer to the request `what` of the program at `path`. All are nothing if the answer does not
// have the key, or null for it, and throw std::runtime_error if the figure is none that a clock or
// an allocator could give.
class AnsweredFigures {
 public:
  AnsweredFigures(const ProgramProcess::Json& answer, std::string what, std::string path)
      : answer_(answer), what_(std::move(what)), path_(std::move(path)) {}

  std::optional<double> seconds_of_run(const char* key) const;  // above 0
  std::optional<double> seconds(const char* key) const;
  std::optional<int64_t> bytes(const char* key) const;

 private:
  const ProgramProcess::Json* find(const char* key) const;
  double number(const char* key, const ProgramProcess::Json& value, double least,
                double most) const;

  const ProgramProcess::Json& answer_;
  std::string what_, path_;
};

}  // namespace flashbench
