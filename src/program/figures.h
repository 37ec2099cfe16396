// What is in another program's answers, which may be anything.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "plan/strict_json.h"
#include "program/process.h"

namespace flashbench {

// The answer to the request `what` of the program at `path`. The figures are nothing if the answer
// does not have the key, or null for it, and throw std::runtime_error if the figure is none that a
// clock or an allocator could give.
class AnsweredFigures {
 public:
  AnsweredFigures(const ProgramProcess::Json& answer, std::string what, std::string path)
      : answer_(answer), what_(std::move(what)), path_(std::move(path)) {}

  std::optional<double> seconds_of_run(const char* key) const;  // above 0
  std::optional<double> seconds(const char* key) const;
  std::optional<int64_t> bytes(const char* key) const;

  // An integer or a text. Throws std::runtime_error if the answer does not have it.
  template <typename T>
  T required(const char* key) const {
    try {
      return StrictJson(answer_).at(key);
    } catch (const std::invalid_argument& error) {
      fail(error.what());
    }
  }

 private:
  const ProgramProcess::Json* find(const char* key) const;
  double number(const char* key, const ProgramProcess::Json& value, double least,
                double most) const;
  [[noreturn]] void fail(const std::string& what_is_wrong) const;

  const ProgramProcess::Json& answer_;
  std::string what_, path_;
};

}  // namespace flashbench
