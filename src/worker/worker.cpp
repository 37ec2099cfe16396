#include "worker/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "attention/error.h"
#include "attention/exit_codes.h"
#include "providers/plugin.h"
#include "report/json.h"
#include "worker/channel.h"
#include "worker/runner.h"
#include "worker/wire.h"

namespace flashbench {

namespace {

using wire::Json;

void die_with(int parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(exit_codes::kOk);  // the parent had already ended
}

// If memory runs out, the system should kill the worker and not the sweep.
void volunteer_for_the_oom_killer() {
  std::ofstream("/proc/self/oom_score_adj") << "1000";
}

// Neither a program that a provider starts nor a child that it forks has the socket: it could write
// to it, and would keep it open after the worker has died.
void keep_the_socket_to_itself() {
  fcntl(kWorkerSocket, F_SETFD, FD_CLOEXEC);
  pthread_atfork(nullptr, nullptr, [] { close(kWorkerSocket); });
}

WorkerMemory* shared_memory() {
  void* memory = mmap(nullptr, sizeof(WorkerMemory), PROT_READ | PROT_WRITE, MAP_SHARED,
                      kWorkerSharedMemory, 0);
  if (memory == MAP_FAILED) {
    throw BadInput("a worker is started by a sweep, not by hand");
  }
  return static_cast<WorkerMemory*>(memory);
}

class Worker {
 public:
  explicit Worker(WorkerMemory* memory)
      : watch_{[memory] { return memory->end_soon.load(); }, &memory->at_work,
               &memory->left_running, &memory->steps} {}

  Json answer(const Json& request) {
    const std::string what = request.at("do");
    if (what == "open") return open(request);
    if (what == "load") return load(request);
    if (what == "ceilings") return ceilings(request);
    if (what == "case") return run_case(request);
    if (what == "describe") return {{"text", runner_->describe(request.at("provider"))}};
    if (what == "counters") return {{"counters", counter_state_to_json(runner_->counters())}};
    if (what == "count") return count(request);
    throw BadInput(fmt::format("a worker does not know the request \"{}\"", what));
  }

 private:
  // A small copy to the device and back is enough to show whether the device works.
  static void probe(Device& device) {
    const std::array<unsigned char, 64> sent{1, 2, 3};
    std::array<unsigned char, 64> received{};
    const Buffer buffer = device.allocate(sent.size(), MemoryUse::workspace);
    device.copy_to_device(buffer.data(), sent.data(), sent.size());
    device.copy_to_host(received.data(), buffer.data(), received.size());
    if (sent != received) throw NoDevice("data copied to the device came back changed");
  }

  Json open(const Json& request) {
    const RunnerOptions options = wire::runner_options(request);
    probe(*make_device(options.device, options.threads));
    runner_ = make_local_runner(options, watch_);
    return {{"device", runner_->device()}, {"providers", runner_->providers()}};
  }

  static Json load(const Json& request) {
    const PluginFile plugin = wire::plugin_file(request.at("plugin"));
    load_plugin(plugin.path, plugin.xxh3);
    return Json::object();
  }

  Json ceilings(const Json& request) {
    Json list = Json::array();
    for (const Ceiling& ceiling : runner_->ceilings(wire::measure_options(request.at("measure")))) {
      list.push_back(ceiling_to_json(ceiling));
    }
    return {{"ceilings", std::move(list)}};
  }

  Json run_case(const Json& request) {
    const std::vector<Record> records = runner_->run(
        case_from_json(request.at("case")), request.at("providers").get<std::vector<std::string>>(),
        wire::case_run_options(request.at("options")));
    Json list = Json::array();
    for (const Record& record : records) list.push_back(record_to_json(record, records));
    return {{"records", std::move(list)}};
  }

  Json count(const Json& request) {
    Json list = Json::array();
    for (const CounterReport& report :
         runner_->count(case_from_json(request.at("case")),
                        request.at("providers").get<std::vector<std::string>>(),
                        wire::case_run_options(request.at("options")))) {
      list.push_back(counter_report_to_json(report));
    }
    return {{"counts", std::move(list)}};
  }

  Watch watch_;
  std::unique_ptr<Runner> runner_;
};

Json answer_or_error(Worker& worker, const std::string& request) {
  try {
    return worker.answer(Json::parse(request));
  } catch (const std::exception& error) {
    return wire::error_answer(error);
  }
}

}  // namespace

int serve(int parent) {
  die_with(parent);
  volunteer_for_the_oom_killer();
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans of its children stay its descendants
  keep_the_socket_to_itself();
  const pid_t self = getpid();
  Worker worker(shared_memory());
  MessageReader reader;
  while (const auto request = receive_message(kWorkerSocket, reader)) {
    const std::string answer = answer_or_error(worker, request->text).dump();
    if (getpid() != self) _exit(exit_codes::kOk);  // a child that ran back to here
    send_message(kWorkerSocket, request->number, answer);
  }
  return exit_codes::kOk;
}

}  // namespace flashbench
