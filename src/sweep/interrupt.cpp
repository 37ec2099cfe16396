#include "sweep/interrupt.h"

#include <atomic>
#include <csignal>

namespace flashbench {

namespace {

std::atomic<int> received_signal{0};

void remember(int signal) {
  if (received_signal.exchange(signal) != 0) {
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
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace flashbench
