#include "tests/worker/scripted_worker.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "worker/channel.h"
#include "worker/worker.h"

namespace flashbench {

namespace {

using ScriptJson = nlohmann::json;

constexpr const char* kFolder = "FLASHBENCH_WORKER_SCRIPT";
constexpr int kNoStepLeft = 99;

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

[[noreturn]] void wait_to_be_killed() {
  while (true) pause();
}

// The bytes in which a message is sent.
std::string bytes_of(uint64_t number, const std::string& message) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  send_message(ends[0], number, message);
  std::string bytes(message.size() + 1000, '\0');
  bytes.resize(static_cast<size_t>(recv(ends[1], bytes.data(), bytes.size(), 0)));
  return bytes;
}

void send_bytes(const std::string& bytes) {
  EXPECT_EQ(send(kWorkerSocket, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
}

void send_half(uint64_t number) {
  const std::string bytes = bytes_of(number, "an answer of some length");
  send_bytes(bytes.substr(0, bytes.size() - 5));
}

// The worker's side of a script.
class Player {
 public:
  Player(std::filesystem::path folder, WorkerMemory* memory)
      : folder_(std::move(folder)), memory_(memory) {}

  int play() {
    MessageReader reader;
    while (const auto request = receive_message(kWorkerSocket, reader)) {
      const size_t number = lines_of(folder_ / "received").size();
      const ScriptJson line{{"worker", getpid()}, {"request", request->text}};
      request_ = request->number;
      std::ofstream(folder_ / "received", std::ios::app) << line << '\n';
      const ScriptJson steps = ScriptJson::parse(std::ifstream(folder_ / "steps"));
      if (number >= steps.size()) return kNoStepLeft;
      take(steps[number]);
    }
    return 0;
  }

 private:
  void answer(const std::string& text) { send_message(kWorkerSocket, request_, text); }

  void hang_after(const std::string& text) {
    answer(text);
    wait_to_be_killed();
  }

  // Returns when the child is ready, and has done its part.
  void start_child(void (*part)()) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      part();
      EXPECT_EQ(write(ready[1], "r", 1), 1);
      close(kWorkerSocket);
      wait_to_be_killed();
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    std::ofstream(folder_ / "child") << child << std::flush;
  }

  void take(const ScriptJson& step) {
    const std::string text = step.at("text");
    const int number = step.at("number");
    std::fputs(step.at("print").get<std::string>().c_str(), stdout);
    std::fflush(stdout);
    memory_->at_work = step.at("at_work").get<int>();
    memory_->left_running = step.at("left_running").get<int>();
    switch (static_cast<Step::Act>(step.at("act").get<int>())) {
      case Step::Act::answer:
        return answer(text);
      case Step::Act::answer_twice:
        answer(text);
        return answer(text);
      case Step::Act::answer_another:
        return send_message(kWorkerSocket, request_ - 1, text);
      case Step::Act::send_bytes:
        send_bytes(text);
        wait_to_be_killed();
      case Step::Act::send_half:
        send_half(request_);
        _exit(0);
      case Step::Act::exit:
        _exit(number);
      case Step::Act::die_with_daemon:
        start_child([] { setsid(); });
        [[fallthrough]];
      case Step::Act::die:
        std::signal(number, SIG_DFL);  // sanitizers handle some
        kill(getpid(), number);
        wait_to_be_killed();
      case Step::Act::close_socket:
        close(kWorkerSocket);
        wait_to_be_killed();
      case Step::Act::answer_when_asked:
        while (!memory_->end_soon) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return answer(text);
      case Step::Act::say_whether_asked:
        return answer(memory_->end_soon ? "asked" : "not asked");
      case Step::Act::hang:
        return hang_after(text);
      case Step::Act::hang_with_child:
        start_child([] {});
        return hang_after(text);
      case Step::Act::hang_with_daemon:
        start_child([] { setsid(); });
        return hang_after(text);
      case Step::Act::hang_in_half:
        answer(text);
        send_half(request_);
        wait_to_be_killed();
      case Step::Act::hang_in_a_step:
        memory_->steps.begin(number, {3, 4, StepWork::pull_keys, {{{4096, 8192}, {}}}});
        return hang_after(text);
    }
  }

  std::filesystem::path folder_;
  WorkerMemory* memory_;
  uint64_t request_ = 0;  // the last one's number
};

int play_worker(const char* folder) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  void* memory = mmap(nullptr, sizeof(WorkerMemory), PROT_READ | PROT_WRITE, MAP_SHARED,
                      kWorkerSharedMemory, 0);
  return Player(folder, static_cast<WorkerMemory*>(memory)).play();
}

}  // namespace

Script::Script(const std::vector<Step>& steps) {
  ScriptJson list = ScriptJson::array();
  for (const Step& step : steps) {
    list.push_back({{"act", static_cast<int>(step.act)},
                    {"text", step.text},
                    {"number", step.number},
                    {"at_work", step.at_work},
                    {"left_running", step.left_running},
                    {"print", step.print}});
  }
  std::ofstream(folder_ / "steps") << list;
  setenv(kFolder, folder_.path().c_str(), 1);
}

Script::~Script() {
  unsetenv(kFolder);
}

std::vector<Script::Received> Script::received() const {
  std::vector<Received> all;
  for (const std::string& line : lines_of(folder_ / "received")) {
    const ScriptJson json = ScriptJson::parse(line);
    all.push_back({json.at("worker"), json.at("request")});
  }
  return all;
}

pid_t Script::child() const {
  pid_t child = 0;
  std::ifstream(folder_ / "child") >> child;
  return child;
}

bool has_ended(pid_t pid) {
  for (int i = 0; i < 6000; ++i) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string stat;
    if (!std::getline(file, stat)) return true;
    if (stat.substr(stat.rfind(')') + 2, 1) == "Z") return true;  // nobody has asked for its code
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace flashbench

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "worker") {
    const char* folder = std::getenv(flashbench::kFolder);
    return folder == nullptr ? flashbench::serve(std::atoi(argv[2]))
                             : flashbench::play_worker(folder);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
