#include "host/process_tree.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

namespace flashbench {

namespace {

void append_descendants(pid_t process, std::set<pid_t>& found) {
  for (const pid_t child : children_of(process)) {
    if (found.insert(child).second) append_descendants(child, found);
  }
}

}  // namespace

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  std::error_code gone;
  const std::filesystem::path threads = fmt::format("/proc/{}/task", process);
  for (std::filesystem::directory_iterator at(threads, gone), end; !gone && at != end;
       at.increment(gone)) {
    std::ifstream list(at->path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

// One look is not enough: what is not dead yet may start others.
void kill_descendants_of(pid_t process) {
  std::set<pid_t> killed;
  for (bool found_more = true; found_more;) {
    found_more = false;
    std::set<pid_t> found;
    append_descendants(process, found);
    for (const pid_t descendant : found) {
      if (!killed.insert(descendant).second) continue;
      kill(descendant, SIGKILL);
      found_more = true;
    }
  }
}

}  // namespace flashbench
