#include "report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

namespace flashbench {

std::string format_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::lround(seconds));
  const int64_t hours = total / 3600, minutes = total / 60 % 60, rest = total % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest)
                   : fmt::format("{}:{:02}", minutes, rest);
}

Progress::Mode Progress::mode_for(std::FILE* stream, bool quiet) {
  if (quiet) return Mode::quiet;
  return isatty(fileno(stream)) != 0 ? Mode::live : Mode::lines;
}

Progress::Progress(std::FILE* stream, Mode mode, int steps, double work)
    : stream_(stream), mode_(mode), steps_(steps), work_(work) {}

Progress::~Progress() {
  clear_line();
}

void Progress::begin_step(const std::string& what) {
  ++step_;
  if (!start_) start_ = std::chrono::steady_clock::now();
  if (mode_ == Mode::quiet) return;
  clear_line();
  const std::string line = fmt::format("[{}/{}] {}{}", step_, steps_, what, eta());
  fmt::print(stream_, "{}{}", line, mode_ == Mode::live ? "" : "\n");
  std::fflush(stream_);
}

void Progress::end_step(double work) {
  work_done_ += work;
}

void Progress::skip_step(double work) {
  ++step_;
  work_ -= work;
}

void Progress::expect(int steps, double work) {
  steps_ += steps;
  work_ += work;
}

void Progress::note(const std::string& line) {
  if (mode_ == Mode::quiet) return;
  clear_line();
  fmt::print(stream_, "{}\n", line);
  std::fflush(stream_);
}

std::string Progress::eta() const {
  if (work_done_ <= 0) return "";
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - *start_;
  return fmt::format("  ETA {}", format_duration(elapsed.count() * (work_ / work_done_ - 1)));
}

void Progress::clear_line() {
  if (mode_ == Mode::live) fmt::print(stream_, "\r\033[K");
}

}  // namespace flashbench
