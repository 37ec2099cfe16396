#include "program/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "attention/error.h"
#include "attention/exit_codes.h"
#include "device/device.h"
#include "host/socket.h"
#include "providers/provider.h"

extern char** environ;

namespace flashbench {

namespace {

[[noreturn]] void end_this_process(const std::string& last_words) {
  fmt::print(stderr, "{}\n", last_words);
  std::fflush(stderr);
  std::_Exit(exit_codes::kProgramFailed);
}

void throw_if_error(const ProgramProcess::Json& answer) {
  if (!answer.contains("error")) return;
  const std::string kind = answer.at("error").at("kind");
  const std::string message = answer.at("error").at("message");
  if (kind == "out_of_memory") throw OutOfMemory(message);
  if (kind == "unsupported") throw Unsupported(message);
  if (kind == "bad_input") throw BadInput(message);
  if (kind == "device_lost") end_this_process(message);
  throw std::runtime_error(message);
}

}  // namespace

ProgramProcess::ProgramProcess(std::string path) : path_(std::move(path)) {
  const auto [own, its] = socket_pair();
  socket_ = own;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, its, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, its, STDOUT_FILENO);
  std::string verb = "serve";
  char* argv[] = {path_.data(), verb.data(), nullptr};
  const int error = posix_spawn(&pid_, path_.c_str(), &files, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  close(its);
  if (error != 0) {
    close(socket_);
    throw BadInput(fmt::format("--program {}: cannot start it: {}", path_, std::strerror(error)));
  }
}

ProgramProcess::~ProgramProcess() {
  close(socket_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);  // it has no work left, and may be slow to notice
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

ProgramProcess::Json ProgramProcess::ask(const Json& request) {
  try {
    send_all(socket_, request.dump() + "\n");
  } catch (const std::system_error&) {
    give_up();
  }
  const std::string text = line();
  Json answer = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    throw std::runtime_error(
        fmt::format("{} gave an answer that is not a JSON object: {}", path_, text));
  }
  answered_ = true;
  throw_if_error(answer);
  return answer;
}

void ProgramProcess::give_back(const Json& request) noexcept {
  try {
    ask(request);
  } catch (const std::exception& error) {
    end_this_process(fmt::format("{} failed at {}: {}", path_, request.dump(), error.what()));
  }
}

std::string ProgramProcess::line() {
  std::array<char, 1 << 16> bytes;
  while (true) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) give_up();
    received_.append(bytes.data(), static_cast<size_t>(count));
  }
}

void ProgramProcess::give_up() {
  const std::string end = how_it_ended();
  if (!answered_) throw BadInput(fmt::format("--program {}: it {}", path_, end));
  end_this_process(fmt::format("{} {}", path_, end));
}

std::string ProgramProcess::how_it_ended() {
  int status = 0;
  kill(pid_, SIGTERM);  // in case it has only closed its side
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFEXITED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

}  // namespace flashbench
