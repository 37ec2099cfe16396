// Shows the progress of a long run: one line that rewrites itself on a terminal, a line per step
// elsewhere.
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

namespace flashbench {

class Progress {
 public:
  enum class Mode { quiet, lines, live };

  // live if `stream` is a terminal, else lines; quiet prints nothing.
  static Mode mode_for(std::FILE* stream, bool quiet);

  Progress(std::FILE* stream, Mode mode);
  ~Progress();  // calls finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Announces the work; `work` is the total over all steps, in any unit roughly proportional to
  // time.
  void plan(int steps, double work);
  void begin_step(const std::string& what);  // "[3/48] ... ETA 1:20"
  void end_step(double work);
  void skip_step(double work);          // a step that was done before
  void expect(int steps, double work);  // additional steps
  void note(const std::string& line);   // prints a separate line that stays on the screen
  void finish();                        // clears the line for further output

 private:
  std::string eta() const;
  void print(const std::string& text) const;

  std::FILE* stream_;
  Mode mode_;
  int steps_ = 0, step_ = 0;
  double work_ = 0, work_done_ = 0;
  bool on_line_ = false;                                        // a live line is on the screen
  std::optional<std::chrono::steady_clock::time_point> start_;  // of the first step
};

// "0:07", "1:20" or "2:05:00".
std::string format_duration(double seconds);

}  // namespace flashbench
