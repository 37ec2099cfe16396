#include "worker/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <system_error>
#include <thread>

#include "host/process_tree.h"
#include "host/socket.h"
#include "worker/interrupt.h"
#include "worker/orphans.h"

extern char** environ;

namespace flashbench {

namespace {

constexpr double kGraceSeconds = 5;
constexpr size_t kLastWords = 4096;  // bytes kept of a worker's output
constexpr size_t kShownWords = 300;  // bytes shown of it
constexpr int kReadsAtOnce = 16;     // of a flood of output, before the clock is checked again
constexpr auto kSignalTime = std::chrono::milliseconds(200);
constexpr auto kTick = std::chrono::milliseconds(50);  // interval between checks for signals

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Moves a descriptor above the numbers that the worker uses.
int moved_up(int fd) {
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 16);
  if (moved < 0) fail("cannot duplicate a descriptor");
  close(fd);
  return moved;
}

// Both ends of a pair.
std::pair<int, int> moved_up(std::pair<int, int> ends) {
  return {moved_up(ends.first), moved_up(ends.second)};
}

std::pair<int, int> pipe_pair() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("cannot create a pipe");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return moved_up({ends[0], ends[1]});
}

int shared_file() {
  const int fd = memfd_create("flashbench-worker", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, sizeof(WorkerMemory)) != 0) fail("cannot create shared memory");
  return moved_up(fd);
}

// The number of processes that the kernel has killed for lack of memory.
int64_t oom_kills() {
  std::ifstream file("/proc/vmstat");
  std::string key;
  for (int64_t value = 0; file >> key >> value;) {
    if (key == "oom_kill") return value;
  }
  return 0;
}

// The last non-empty line, made printable and shortened for a table.
std::string last_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return (c < 0x20 && c != '\n') || c >= 0x7f; }, '?');
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  if (text.size() > kShownWords) text = text.substr(0, kShownWords) + "...";
  return text;
}

}  // namespace

WorkerProcess::WorkerProcess() : oom_kills_before_(oom_kills()) {
  const auto [own_socket, socket] = moved_up(socket_pair());
  const auto [own_output, output] = pipe_pair();
  const int memory = shared_file();
  socket_ = own_socket;
  output_ = own_output;
  void* mapped = mmap(nullptr, sizeof(WorkerMemory), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (mapped == MAP_FAILED) fail("cannot map shared memory");
  memory_ = new (mapped) WorkerMemory{-1, -1, false, {}};
  adopt_orphans();
  start(socket, memory, output);
  add_worker(pid_);
  close(socket);
  close(memory);
  close(output);
  kill_on_second_interrupt(pid_);
}

WorkerProcess::~WorkerProcess() {
  kill_and_reap();
  close(socket_);
  close(output_);
  munmap(memory_, sizeof(WorkerMemory));
}

void WorkerProcess::start(int socket, int shared_memory, int output) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&files, socket, kWorkerSocket);
  posix_spawn_file_actions_adddup2(&files, shared_memory, kWorkerSharedMemory);

  // The worker gets its own process group: a terminal's Ctrl-C then reaches only the sweep, and a
  // kill reaches the worker's children too.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);

  std::string program = "flashbench", verb = "worker", parent = std::to_string(getpid());
  char* argv[] = {program.data(), verb.data(), parent.data(), nullptr};
  const int error = posix_spawn(&pid_, "/proc/self/exe", &files, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    errno = error;
    fail("cannot start a worker");
  }
}

std::variant<Answer, AbnormalEnd> WorkerProcess::ask(const std::string& request, double seconds,
                                                     const std::function<bool()>& interrupted) {
  const auto from_now = [](double s) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  };
  const double grace = std::clamp(seconds, 0.5, kGraceSeconds);
  Clock::time_point deadline = from_now(seconds);
  bool asked_to_end = false, late = false;
  memory_->end_soon = false;
  try {
    send_message(socket_, ++requests_, request);
    while (true) {
      wait_for_news(std::min(deadline, Clock::now() + kTick));
      if (auto text = next_answer()) return Answer{std::move(*text), late};
      if (closed_) return end_of("its worker closed the connection");
      const bool overdue = Clock::now() >= deadline;
      if (asked_to_end && overdue) {
        const auto unfinished = memory_->steps.unfinished();
        kill_and_reap();
        return AbnormalEnd{
            Status::timeout,
            with_last_words(fmt::format("{}it did not end within {:g} s; its worker was killed",
                                        unfinished ? *unfinished + "; " : "", seconds))};
      }
      if (!asked_to_end && (overdue || interrupted())) {
        memory_->end_soon = true;
        asked_to_end = true;
        late = overdue;
        deadline = from_now(grace);
      }
    }
  } catch (const ChannelError& error) {
    return end_of(error.what());
  }
}

// Waits for data from the worker, or for its end.
void WorkerProcess::wait_for_news(Clock::time_point until) {
  std::array<pollfd, 2> sources{{{socket_, POLLIN, 0}, {output_, POLLIN, 0}}};
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  poll(sources.data(), sources.size(), static_cast<int>(std::max<int64_t>(0, wait.count())));
  keep_last_words();
  std::array<char, 1 << 16> bytes;
  const ssize_t received = recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (received > 0) reader_.append({bytes.data(), static_cast<size_t>(received)});
  if (received == 0 || (received < 0 && errno == ECONNRESET)) closed_ = true;
}

// A second answer to an earlier request shows that more than one process answers.
std::optional<std::string> WorkerProcess::next_answer() {
  auto message = reader_.next();
  if (!message) return std::nullopt;
  if (message->number != requests_) {
    throw ChannelError(
        fmt::format("expected the answer to request {}, found one to request {}: another process "
                    "answers for its worker",
                    requests_, message->number));
  }
  return std::move(message->text);
}

// Reads the worker's output, so that it never blocks, and keeps the end of it.
void WorkerProcess::keep_last_words() {
  std::array<char, 1 << 16> bytes;
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t count = read(output_, bytes.data(), bytes.size());
    if (count <= 0) return;
    last_words_.append(bytes.data(), static_cast<size_t>(count));
    if (last_words_.size() > kLastWords) last_words_.erase(0, last_words_.size() - kLastWords);
  }
}

void WorkerProcess::kill_and_reap() {
  if (pid_ < 0) return;
  kill_on_second_interrupt(0);
  kill(pid_, SIGSTOP);  // it starts nothing more
  kill_descendants_of(pid_);
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, &exit_status_, 0) < 0 && errno == EINTR) {
  }
  remove_worker(pid_);
  pid_ = -1;
  end_orphans();  // of a worker that had died before
}

// Determines how a worker ended that has closed its socket, or sent bytes that are not a message.
AbnormalEnd WorkerProcess::end_of(const std::string& otherwise) {
  const bool ended_by_itself = wait_for_end();
  kill_and_reap();
  keep_last_words();
  if (!ended_by_itself) return {Status::crashed, with_last_words(otherwise)};
  if (WIFEXITED(exit_status_)) {
    return {Status::crashed,
            with_last_words(fmt::format("its worker ended without an answer, with exit code {}",
                                        WEXITSTATUS(exit_status_)))};
  }
  const int signal = WTERMSIG(exit_status_);
  if (signal == SIGTERM || signal == SIGINT) {
    // A signal to all processes of a job reaches the sweep too; give it time to arrive.
    std::this_thread::sleep_for(kSignalTime);
  }
  if (signal == SIGKILL && oom_kills() > oom_kills_before_) {
    return {Status::out_of_memory, "the system killed its worker because memory ran out"};
  }
  return {Status::crashed, with_last_words(fmt::format("its worker was killed by signal {} ({})",
                                                       signal, strsignal(signal)))};
}

// A dying process closes its files a moment before it ends.
bool WorkerProcess::wait_for_end() const {
  const auto until = Clock::now() + std::chrono::seconds(1);
  while (Clock::now() < until) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == pid_) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::string WorkerProcess::with_last_words(std::string reason) const {
  const std::string words = last_line(last_words_);
  return words.empty() ? reason : fmt::format("{}; it last printed: {}", reason, words);
}

}  // namespace flashbench
