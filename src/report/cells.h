// The figures that people read first, as short text; the console table and Markdown lay them out.
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

// One cell for each heading, in order; "-" for an absent figure.
std::vector<Cell> cells(const Record&, const SweepResult&);

// The case in a line: "forward  fp32  causal_top_left  batch 2  heads 8/2  q 128  kv 4096  d 64".
std::string case_heading(const Case&);

// What to know beside the figures: why there are none, and the load that they were taken beside.
std::vector<std::string> notes(const Record&);

// "46 ok, 2 unsupported", then for each provider but naive its geometric mean speed-up over naive,
// and how many rows were timed beside load.
std::vector<std::string> summary_lines(const SweepResult&);

}  // namespace flashbench
