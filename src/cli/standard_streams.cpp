#include "cli/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "cli/errors.h"
#include "plan/json_text.h"

namespace flashbench {

namespace {

bool sigpipe_was_ignored = false;

}  // namespace

void prepare_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // With the wrong access mode, so that using it is an error, as for a closed stream.
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
  }
  std::signal(SIGXFSZ, SIG_IGN);
  sigpipe_was_ignored = std::signal(SIGPIPE, SIG_IGN) == SIG_IGN;
}

void print_error(const std::string& text) {
  static_cast<void>(std::fputs(printable(text, /*lines=*/true).c_str(), stderr));
}

int flush_standard_output(int code) {
  if (std::fflush(stdout) == 0 || code != exit_codes::kOk) return code;
  return lost_output(errno);
}

int lost_output(int error) {
  if (error == EPIPE && !sigpipe_was_ignored) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  print_error(fmt::format("flashbench: standard output: cannot write: {}\n", std::strerror(error)));
  return exit_codes::kFile;
}

}  // namespace flashbench
