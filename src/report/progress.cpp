#include "report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <string_view>

namespace flashbench {

std::string format_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::lround(seconds));
  const int64_t hours = total / 3600, minutes = total / 60 % 60, rest = total % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest)
                   : fmt::format("{}:{:02}", minutes, rest);
}

namespace {

// The number of characters that fit one line of the terminal: only one line can be cleared.
size_t columns(std::FILE* stream) {
  winsize size{};
  const bool known = ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1u : std::string::npos;
}

}  // namespace

Progress::Mode Progress::mode_for(std::FILE* stream, bool quiet) {
  if (quiet) return Mode::quiet;
  // A dumb terminal cannot clear a line.
  const char* terminal = std::getenv("TERM");
  const bool is_dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  return isatty(fileno(stream)) != 0 && !is_dumb ? Mode::live : Mode::lines;
}

Progress::Progress(std::FILE* stream, Mode mode) : stream_(stream), mode_(mode) {}

Progress::~Progress() {
  finish();
}

void Progress::plan(int steps, double work) {
  steps_ = steps;
  work_ = work;
}

void Progress::begin_step(const std::string& what) {
  ++step_;
  if (!start_) start_ = std::chrono::steady_clock::now();
  finish();
  on_line_ = mode_ == Mode::live;
  const std::string line = fmt::format("[{}/{}] {}{}", step_, steps_, what, eta());
  print(on_line_ ? line.substr(0, columns(stream_)) : line + "\n");
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
  finish();
  print(line + "\n");
}

void Progress::finish() {
  if (on_line_) print("\r\033[K");
  on_line_ = false;
}

std::string Progress::eta() const {
  if (work_done_ <= 0) return "";
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - *start_;
  return fmt::format("  ETA {}", format_duration(elapsed.count() * (work_ / work_done_ - 1)));
}

// Ignores errors: the work matters more than its progress display.
void Progress::print(const std::string& text) const {
  if (mode_ == Mode::quiet) return;
  static_cast<void>(std::fputs(text.c_str(), stream_));
  static_cast<void>(std::fflush(stream_));
}

}  // namespace flashbench
