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

// Which figures the rows of a result show, found once for all rows.
class Cells {
 public:
  explicit Cells(const SweepResult&);  // which has to outlive it

  // One cell per heading, in order; "-" for an absent figure.
  std::vector<Cell> of(const Record&) const;

 private:
  const SweepResult& result_;
  bool shows_share_of_peak_, shows_share_of_stream_, shows_rel_rms_, shows_determinism_;
};

// The case in a line: "forward  fp32  causal_top_left  batch 2  heads 8/2  q 128  kv 4096  d 64".
std::string case_heading(const Case&);

// "46 ok (2 coarse), 2 unsupported"; then, for each provider but naive, its geometric mean speed-up
// over naive; then warnings.
std::vector<std::string> summary_lines(const SweepResult&);

}  // namespace flashbench
