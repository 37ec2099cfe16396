#include "measure/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

#include "host/core_seconds.h"

namespace flashbench {

namespace {

constexpr double kQuietShare = 0.05;   // of the cores: background work of the system
constexpr double kStolenShare = 0.01;  // of the cores: more than chance
constexpr double kMicrosecond = 1e-6;

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<int> usable_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// The unsigned numbers of a line, up to the first word that is not a number.
std::vector<double> numbers(std::string_view words) {
  std::vector<double> values;
  while (true) {
    words.remove_prefix(std::min(words.find_first_not_of(' '), words.size()));
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), value);
    if (error != std::errc()) return values;
    values.push_back(static_cast<double>(value));
    words.remove_prefix(static_cast<size_t>(end - words.data()));
  }
}

// Calls line(text) for every line.
template <typename Line>
void for_lines(std::string_view text, const Line& line) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

Load operator+(const Load& a, const Load& b) {
  Load sum{a.seconds + b.seconds, 0, a.others + b.others, a.stolen + b.stolen};
  if (sum.seconds > 0) sum.cores = (a.cores * a.seconds + b.cores * b.seconds) / sum.seconds;
  if (a.stalled && b.stalled) sum.stalled = *a.stalled + *b.stalled;
  return sum;
}

bool is_heavy(const Load& load) {
  return load.others_cores() > kQuietShare * load.cores;
}

std::string told(const Load& load) {
  std::vector<std::string> users;
  if (is_heavy(load)) users.push_back(fmt::format("others used {:.1f}", load.others_cores()));
  if (load.stolen_cores() > kStolenShare * load.cores) {
    users.push_back(
        fmt::format("the hypervisor {}{:.2f}", users.empty() ? "used " : "", load.stolen_cores()));
  }
  if (users.empty()) return "";
  return fmt::format("{} of {:g} cores", fmt::join(users, " and "), load.cores);
}

std::optional<CoreSums> core_sums(std::string_view proc_stat, const std::vector<int>& cores) {
  std::map<int, std::vector<double>> ticks;
  for_lines(proc_stat, [&](std::string_view line) {
    if (!line.starts_with("cpu")) return;
    int core = -1;
    const auto [end, error] = std::from_chars(line.data() + 3, line.data() + line.size(), core);
    if (error != std::errc()) return;  // the line "cpu" is the sum
    ticks[core] = numbers(line.substr(static_cast<size_t>(end - line.data())));
  });
  constexpr std::array<size_t, 5> kBusy{0, 1, 2, 5, 6};  // user, nice, system, irq, softirq
  constexpr size_t kIdle = 3, kWaitingForDisks = 4, kStolen = 7;
  const double seconds_a_tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  CoreSums sums;
  for (int core : cores) {
    const auto at = ticks.find(core);
    if (at == ticks.end() || at->second.size() <= kStolen) return std::nullopt;
    for (size_t field : kBusy) sums.busy += at->second[field] * seconds_a_tick;
    sums.idle += (at->second[kIdle] + at->second[kWaitingForDisks]) * seconds_a_tick;
    sums.stolen += at->second[kStolen] * seconds_a_tick;
  }
  return sums;
}

std::optional<double> stalled_seconds(std::string_view pressure) {
  std::optional<double> seconds;
  for_lines(pressure, [&](std::string_view line) {
    constexpr std::string_view kTotal = "total=";
    const size_t total = line.find(kTotal);
    if (!line.starts_with("some ") || total == std::string_view::npos) return;
    const std::vector<double> values = numbers(line.substr(total + kTotal.size()));
    if (!values.empty()) seconds = values[0] * kMicrosecond;
  });
  return seconds;
}

LoadWatch::LoadWatch(Device* device) : device_(device), cores_(usable_cores()), start_(read()) {}

std::optional<Load> LoadWatch::so_far() const {
  const Reading now = read();
  if (!start_.sums || !now.sums || cores_.empty()) return std::nullopt;
  const double seconds = std::chrono::duration<double>(now.at - start_.at).count();
  const double busy = now.sums->busy - start_.sums->busy;
  const double stolen = now.sums->stolen - start_.sums->stolen;
  const bool stands_still = busy + stolen + (now.sums->idle - start_.sums->idle) <= 0;
  if (stands_still || !(seconds > 0)) return std::nullopt;
  Load load{.seconds = seconds,
            .cores = static_cast<double>(cores_.size()),
            .others = std::max(0.0, busy - (now.ours - start_.ours)),
            .stolen = std::max(0.0, stolen)};
  if (start_.stalled && now.stalled) load.stalled = *now.stalled - *start_.stalled;
  return load;
}

double LoadWatch::ours() const {
  const auto ran = device_ == nullptr ? std::nullopt : device_->ran_seconds();
  return ran ? *ran : process_ran_seconds(getpid()).value_or(0);
}

LoadWatch::Reading LoadWatch::read() const {
  return {std::chrono::steady_clock::now(), core_sums(text_of("/proc/stat"), cores_),
          stalled_seconds(text_of("/proc/pressure/cpu")), ours()};
}

}  // namespace flashbench
