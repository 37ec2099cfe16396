#include "case/background.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "host/process_tree.h"

namespace flashbench {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// A library's threads may poll for more work for some milliseconds before they sleep. A task that
// uses more than this without a rest is doing something else.
constexpr double kMostSeconds = 0.05;
constexpr double kRestingShare = 0.05;  // of the time between two checks
constexpr double kSecondsWorthAName = 0.001;
constexpr Seconds kFirstWait{0.001}, kLongestWait{0.016};
constexpr Seconds kPatience{2};  // for tasks that get no processor time

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// proc(5): "pid (name) state ..."; fields 14 and 15 are the ticks used, and the name may contain
// anything. schedstat has nanoseconds, if the kernel records them.
Task task_at(const std::filesystem::path& folder, pid_t process, pid_t thread) {
  Task task{process, thread, false, 0};
  const std::string stat = text_of(folder / "stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return task;  // it has ended
  std::istringstream fields(stat.substr(name_end + 1));
  char state = 0;
  fields >> state;
  task.at_work = state == 'R';
  std::string skipped;
  for (int field = 4; field <= 13; ++field) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  task.cpu_seconds = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  double nanoseconds = 0;
  if (std::istringstream(text_of(folder / "schedstat")) >> nanoseconds && nanoseconds > 0) {
    task.cpu_seconds = nanoseconds * 1e-9;
  }
  return task;
}

// Appends a process's threads, then those of its child processes.
void append_process(std::vector<Task>& tasks, pid_t process, std::set<pid_t>& seen) {
  if (!seen.insert(process).second) return;
  std::error_code gone;
  const std::filesystem::path threads = fmt::format("/proc/{}/task", process);
  for (std::filesystem::directory_iterator at(threads, gone), end; !gone && at != end;
       at.increment(gone)) {
    const auto thread = static_cast<pid_t>(std::atoi(at->path().filename().c_str()));
    tasks.push_back(task_at(at->path(), process, thread));
  }
  for (const pid_t child : children_of(process)) append_process(tasks, child, seen);
}

const Task* find(const std::vector<Task>& tasks, pid_t thread) {
  const auto found = std::find_if(tasks.begin(), tasks.end(),
                                  [&](const Task& task) { return task.thread == thread; });
  return found == tasks.end() ? nullptr : &*found;
}

// The activity between two checks.
struct Activity {
  double cpu_seconds = 0;
  bool at_work = false;                // at the second check
  std::set<pid_t> threads, processes;  // that caused it: threads of this process; other processes
};

Activity activity(const std::vector<Task>& before, const std::vector<Task>& now,
                  const std::function<bool(const Task&)>& counts) {
  Activity result;
  for (const Task& task : now) {
    if (!counts(task)) continue;
    const Task* earlier = find(before, task.thread);
    const double used = task.cpu_seconds - (earlier == nullptr ? 0 : earlier->cpu_seconds);
    result.cpu_seconds += used;
    result.at_work = result.at_work || task.at_work;
    if (used < kSecondsWorthAName) continue;
    const bool own = task.process == getpid();
    (own ? result.threads : result.processes).insert(own ? task.thread : task.process);
  }
  return result;
}

std::string named(const Activity& seen) {
  const auto counted = [](size_t count, const char* one, const char* many) {
    return fmt::format("{} {}", count, count == 1 ? one : many);
  };
  std::string threads = counted(seen.threads.size(), "thread", "threads");
  const std::string processes = counted(seen.processes.size(), "child process", "child processes");
  if (seen.processes.empty()) return threads;
  return seen.threads.empty() ? processes : threads + " and " + processes;
}

}  // namespace

std::vector<Task> background_tasks() {
  std::vector<Task> tasks;
  std::set<pid_t> seen;
  append_process(tasks, getpid(), seen);
  std::erase_if(tasks, [](const Task& task) { return task.thread == gettid(); });
  return tasks;
}

std::string what_goes_on(const std::vector<Task>& known,
                         const std::function<bool(const Task&)>& counts) {
  const std::vector<Task> first = background_tasks();
  const bool needs_a_look = std::any_of(first.begin(), first.end(), [&](const Task& task) {
    return counts(task) && (task.at_work || find(known, task.thread) == nullptr);
  });
  if (!needs_a_look) return "";

  const Clock::time_point start = Clock::now();
  Clock::time_point looked = start;
  std::vector<Task> before = first;
  double used = 0;
  for (Seconds wait = kFirstWait; looked - start < kPatience;
       wait = std::min(2 * wait, kLongestWait)) {
    std::this_thread::sleep_for(wait);
    const Clock::time_point now = Clock::now();
    std::vector<Task> tasks = background_tasks();
    const Activity made = activity(before, tasks, counts);
    if (!made.at_work && made.cpu_seconds <= kRestingShare * Seconds(now - looked).count())
      return "";
    used += made.cpu_seconds;
    if (used > kMostSeconds) {
      return fmt::format(
          "{} continued to work after it had returned: {:.0f} ms of processor time in "
          "{:.0f} ms without a pause",
          named(activity(first, tasks, counts)), used * 1e3, Seconds(now - start).count() * 1e3);
    }
    before = std::move(tasks);
    looked = now;
  }
  return "";
}

}  // namespace flashbench
