#include "worker/interrupt.h"

#include <atomic>
#include <csignal>

#include "attention/exit_codes.h"

namespace flashbench {

namespace {

std::atomic<int> received_signal{0};
std::atomic<pid_t> doomed_group{0};

void remember(int signal) {
  if (received_signal.exchange(signal) != 0) {
    if (const pid_t group = doomed_group.load(); group > 0) kill(-group, SIGKILL);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

void watch_for_interrupts() {
  std::signal(SIGINT, remember);
  std::signal(SIGTERM, remember);
}

bool interrupted() {
  return received_signal.load() != 0;
}

int interrupt_exit_code() {
  const int signal = received_signal.load();
  return signal == 0 ? exit_codes::kOk : exit_codes::kSignal + signal;
}

void kill_on_second_interrupt(pid_t process_group) {
  doomed_group.store(process_group);
}

}  // namespace flashbench
