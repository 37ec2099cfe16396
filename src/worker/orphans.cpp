#include "worker/orphans.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "host/process_tree.h"

namespace flashbench {

namespace {

constexpr const char* kMark = "FLASHBENCH_WORKER_OF";

std::set<pid_t>& workers() {
  static std::set<pid_t> pids;
  return pids;
}

bool is_marked(pid_t process) {
  const std::string mark = fmt::format("{}={}", kMark, getpid());
  std::ifstream file(fmt::format("/proc/{}/environ", process));
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry == mark) return true;
  }
  return false;
}

// Returns false if it cannot be killed: it may belong to another user.
bool end(pid_t orphan) {
  kill(orphan, SIGSTOP);
  kill_descendants_of(orphan);
  if (kill(orphan, SIGKILL) != 0) return false;
  while (waitpid(orphan, nullptr, 0) < 0 && errno == EINTR) {
  }
  return true;
}

}  // namespace

void adopt_orphans() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  setenv(kMark, std::to_string(getpid()).c_str(), 1);
}

// The children of an orphan that has ended are orphans then.
void end_orphans() {
  const auto ended = [](pid_t child) {
    return !workers().contains(child) && is_marked(child) && end(child);
  };
  while (std::ranges::count_if(children_of(getpid()), ended) > 0) {
  }
}

void add_worker(pid_t worker) {
  workers().insert(worker);
}

void remove_worker(pid_t worker) {
  workers().erase(worker);
}

}  // namespace flashbench
