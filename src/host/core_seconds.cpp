#include "host/core_seconds.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>

namespace flashbench {

namespace {

constexpr double kNanosecond = 1e-9;

// The second number of a line "ran waited slices"; empty if it cannot be read.
std::optional<uint64_t> waited_nanoseconds(const std::string& schedstat) {
  const int file = open(schedstat.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 96> buffer{};
  const ssize_t bytes = read(file, buffer.data(), buffer.size());
  close(file);
  if (bytes <= 0) return std::nullopt;
  std::string_view text(buffer.data(), static_cast<size_t>(bytes));
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  text.remove_prefix(space + 1);
  uint64_t nanoseconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), nanoseconds);
  if (error != std::errc()) return std::nullopt;
  return nanoseconds;
}

}  // namespace

// Uses the process's CPU clock, which is always exact; schedstat is as old as the last tick.
std::optional<double> process_ran_seconds(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return std::nullopt;
  }
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * kNanosecond;
}

std::optional<double> process_waited_seconds(pid_t process) {
  const std::string folder = fmt::format("/proc/{}/task", process);
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir(folder.c_str()), closedir);
  if (tasks == nullptr) return std::nullopt;
  uint64_t waited = 0;
  bool told = false;
  while (const dirent* task = readdir(tasks.get())) {
    if (task->d_name[0] == '.') continue;
    const auto more = waited_nanoseconds(fmt::format("{}/{}/schedstat", folder, task->d_name));
    told |= more.has_value();  // a thread may have ended in between
    waited += more.value_or(0);
  }
  if (!told) return std::nullopt;
  return static_cast<double>(waited) * kNanosecond;
}

}  // namespace flashbench
