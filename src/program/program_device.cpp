#include "program/program_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "host/core_seconds.h"
#include "plan/json_text.h"
#include "program/figures.h"

namespace flashbench {

namespace {

constexpr size_t kStagingBytes = size_t{64} << 20;  // per copy

uint64_t address(const void* data) {
  return reinterpret_cast<uint64_t>(data);
}

}  // namespace

ProgramDevice::ProgramDevice(std::unique_ptr<Device> beside, const std::string& path,
                             const std::vector<std::string>& providers)
    : beside_(std::move(beside)), path_(path), process_(path) {
  Json request{{"do", "open"},
               {"kind", name(info().kind)},
               {"index", info().index},
               {"threads", info().threads},
               {"cold_bytes", eviction_bytes()},
               {"providers", providers}};
  if (!info().rank_gpus.empty()) request["gpus"] = info().rank_gpus;
  const Json answer = ask(request);
  facts_.emplace_back("program", path);
  try {
    for (const Json& offer : answer.at("providers")) {
      offers_.push_back({offer.at("name"), offer.at("description"), offer.at("logsumexp"),
                         offer.value("axes", std::vector<std::string>())});
    }
    for (const auto& [key, value] : answer.at("facts").items()) facts_.emplace_back(key, value);
  } catch (const Json::exception&) {
    throw std::runtime_error(fmt::format(
        "{} gave a wrong answer to \"open\": expected \"providers\", each with name, description "
        "and logsumexp, and \"facts\", found {}",
        path, shown(answer)));
  }
}

ProgramDevice::Json ProgramDevice::run(int session, const Json& outputs) {
  Json answer =
      ask({{"do", "run"}, {"session", session}, {"outputs", outputs}, {"timed", timing_}});
  const AnsweredFigures figures(answer, "run", path_);
  seconds_ = figures.seconds_of_run("seconds");
  host_seconds_ = figures.seconds("host_seconds");
  seconds_behind_ = figures.seconds("seconds_behind");
  const int64_t workspace = figures.bytes("workspace_bytes").value_or(0);
  account(MemoryUse::workspace, workspace);  // so that the peak contains it
  account(MemoryUse::workspace, -workspace);
  return answer;
}

void ProgramDevice::copy_to_device(void* to, const void* from, size_t bytes) {
  staging_.reserve(std::min(bytes, kStagingBytes));
  for (size_t done = 0; done < bytes; done += kStagingBytes) {
    const size_t part = std::min(kStagingBytes, bytes - done);
    std::memcpy(staging_.data(), static_cast<const std::byte*>(from) + done, part);
    ask({{"do", "write"}, {"address", address(to) + done}, {"bytes", part}, {"file", file()}});
  }
}

void ProgramDevice::copy_to_host(void* to, const void* from, size_t bytes) {
  staging_.reserve(std::min(bytes, kStagingBytes));
  for (size_t done = 0; done < bytes; done += kStagingBytes) {
    const size_t part = std::min(kStagingBytes, bytes - done);
    ask({{"do", "read"}, {"address", address(from) + done}, {"bytes", part}, {"file", file()}});
    std::memcpy(static_cast<std::byte*>(to) + done, staging_.data(), part);
  }
}

void ProgramDevice::poison(void* data, size_t bytes) {
  ask({{"do", "poison"}, {"address", address(data)}, {"bytes", bytes}});
}

double ProgramDevice::time(const std::function<void()>& launch) {
  struct Timing {
    explicit Timing(bool& timing) : on(timing) { on = true; }
    ~Timing() { on = false; }
    bool& on;
  };
  seconds_.reset();
  const Timing timing(timing_);
  launch();
  if (!seconds_) throw std::logic_error("what is timed does not run in the program");
  return *seconds_;
}

double ProgramDevice::seconds_behind(const std::function<void()>& launch) {
  launch();
  return seconds_behind_.value_or(0);
}

Replay ProgramDevice::replayable(const std::function<void()>& launch) {
  Replay replay{.launch = launch};
  std::array<double, 5> seconds{};
  for (double& s : seconds) {
    launch();
    if (!host_seconds_) return replay;
    s = *host_seconds_;
  }
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  replay.host_seconds = seconds[2];
  return replay;
}

std::vector<std::pair<std::string, std::string>> ProgramDevice::facts() const {
  auto facts = beside_->facts();
  facts.insert(facts.end(), facts_.begin(), facts_.end());
  return facts;
}

// The sum over the threads of the program and of this process, one of which waits for them.
std::optional<double> ProgramDevice::ran_seconds() {
  const auto here = beside_->ran_seconds();
  const auto there = process_ran_seconds(process_.pid());
  return here && there ? std::optional(*here + *there) : std::nullopt;
}

std::optional<double> ProgramDevice::waited_seconds() {
  const auto here = beside_->waited_seconds();
  const auto there = process_waited_seconds(process_.pid());
  return here && there ? std::optional(*here + *there) : std::nullopt;
}

void ProgramDevice::evict_caches() {
  ask({{"do", "evict_caches"}});
}

uint64_t ProgramDevice::hash(const void* data, size_t bytes, uint64_t seed) {
  return ask_for<uint64_t>(
      "hash", {{"do", "hash"}, {"address", address(data)}, {"bytes", bytes}, {"seed", seed}});
}

int64_t ProgramDevice::poisoned_elements(const void* data, int64_t elements, size_t element_bytes) {
  return ask_for<int64_t>("count", {{"do", "poisoned_elements"},
                                    {"address", address(data)},
                                    {"elements", elements},
                                    {"element_bytes", element_bytes}});
}

void ProgramDevice::flip_signs(void* data, int64_t elements, size_t element_bytes) {
  ask({{"do", "flip_signs"},
       {"address", address(data)},
       {"elements", elements},
       {"element_bytes", element_bytes}});
}

void* ProgramDevice::raw_allocate(size_t bytes) {
  try {
    return reinterpret_cast<void*>(
        ask_for<uint64_t>("address", {{"do", "allocate"}, {"bytes", bytes}}));
  } catch (const OutOfMemory&) {
    return nullptr;
  }
}

void ProgramDevice::raw_free(void* data) {
  process_.give_back({{"do", "free"}, {"address", address(data)}});
}

ProgramDevice::Json ProgramDevice::file() const {
  return {{"path", staging_.path()}, {"bytes", staging_.bytes()}};
}

}  // namespace flashbench
