// The most important figures as short text, for the console table and for Markdown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/record.h"

namespace flashbench {

struct Cell {
  std::string_view heading;
  int width;  // on the console
  std::string text;
};

// One cell per heading, in order; "-" for an absent figure.
std::vector<Cell> cells(const Record&, const SweepResult&);

// The case in a line: "forward  fp32  causal_top_left  batch 2  heads 8/2  q 128  kv 4096  d 64".
std::string case_heading(const Case&);

// "46 ok (2 coarse), 2 unsupported"; then, for each provider but naive, its geometric mean speed-up
// over naive; then warnings.
std::vector<std::string> summary_lines(const SweepResult&);

}  // namespace flashbench
