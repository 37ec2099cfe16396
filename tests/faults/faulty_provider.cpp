#include "faulty_provider.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "sweep/choose.h"

namespace flashbench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFirstTimedRun = 1;  // run 0 is the one that is verified first

struct Fault {
  std::string kind;
  double value = 0;
};

Fault fault_for(const Problem& problem) {
  const char* variable = std::getenv("FLASHBENCH_FAULT");
  std::string text = variable == nullptr ? "" : variable;
  if (const size_t at = text.find('@'); at != std::string::npos) {
    if (problem.id().find(text.substr(at + 1)) == std::string::npos) return {};
    text.resize(at);
  }
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return {text};
  return {text.substr(0, equals), std::stod(text.substr(equals + 1))};
}

// The tensors of either pass.
std::vector<TensorView> tensors(const Problem& problem, const Outputs& outputs) {
  if (problem.pass == Pass::forward) return {outputs.o};
  return {outputs.dq, outputs.dk, outputs.dv};
}

class FaultySession : public Session {
 public:
  FaultySession(const Problem& problem, Device& device, std::unique_ptr<Session> session)
      : problem_(problem),
        device_(device),
        fault_(fault_for(problem)),
        session_(std::move(session)) {}

  ~FaultySession() override {
    if (left_running_.joinable()) left_running_.join();
  }

  void prepare_inputs(const Inputs& inputs) override { session_->prepare_inputs(inputs); }

  void run(const Inputs& inputs, const Outputs& outputs) override {
    const int number = runs_++;
    const auto start = Clock::now();
    if (fault_.kind == "left_running") return run_behind_the_back(inputs, outputs);
    if (fault_.kind == "early_return" && number >= kFirstTimedRun) return;
    if (fault_.kind == "stale" && number >= kFirstTimedRun) return copy_first(outputs);
    session_->run(inputs, outputs);
    if (fault_.kind == "slow") return linger((Clock::now() - start) * fault_.value);
    if (fault_.kind == "stale") return keep_first(outputs);
    misbehave(inputs, outputs);
  }

  std::string kernel() const override { return session_->kernel(); }
  std::optional<int64_t> requested_bytes() const override { return session_->requested_bytes(); }

 private:
  void misbehave(const Inputs& inputs, const Outputs& outputs) {
    static const std::map<std::string, void (FaultySession::*)(const Inputs&, const Outputs&)> acts{
        {"", &FaultySession::nothing},
        {"crash", &FaultySession::crash},
        {"abort", &FaultySession::abort},
        {"exit", &FaultySession::exit},
        {"throw", &FaultySession::throw_something},
        {"hang", &FaultySession::hang},
        {"deaf", &FaultySession::be_deaf},
        {"out_of_memory", &FaultySession::want_too_much},
        {"huge_output", &FaultySession::print_a_lot},
        {"nan", &FaultySession::write_nan},
        {"wrong_shape", &FaultySession::write_other_layout},
        {"modify_inputs", &FaultySession::modify_inputs},
        {"early_return", &FaultySession::nothing},
    };
    (this->*acts.at(fault_.kind))(inputs, outputs);
  }

  void nothing(const Inputs&, const Outputs&) {}

  void crash(const Inputs&, const Outputs&) {
    if (const char* marker = std::getenv("FLASHBENCH_LOST_DEVICE")) std::ofstream(marker) << "lost";
    std::raise(SIGSEGV);
  }

  void abort(const Inputs&, const Outputs&) {
    fmt::print(stderr, "faulty: these are my last words\n");
    std::abort();
  }

  void exit(const Inputs&, const Outputs&) { std::_Exit(0); }

  void throw_something(const Inputs&, const Outputs&) {
    throw std::runtime_error("thrown, as told");
  }

  void hang(const Inputs&, const Outputs&) {
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

  void be_deaf(const Inputs& inputs, const Outputs& outputs) {
    std::signal(SIGTERM, SIG_IGN);
    hang(inputs, outputs);
  }

  void want_too_much(const Inputs&, const Outputs&) {
    device_.allocate(size_t{1} << 50, MemoryUse::workspace);
  }

  void print_a_lot(const Inputs&, const Outputs&) {
    const std::string line(1023, 'x');
    for (int i = 0; i < (32 << 10); ++i) {
      fmt::print(stdout, "{}\n", line);
      fmt::print(stderr, "{}\n", line);
    }
  }

  void write_nan(const Inputs&, const Outputs& outputs) {
    std::memset(tensors(problem_, outputs)[0].data, 0xff, bytes(1));
  }

  void write_other_layout(const Inputs&, const Outputs& outputs) {
    for (const TensorView& tensor : tensors(problem_, outputs)) {
      const int64_t heads = tensor.heads, length = tensor.length;
      const size_t row = bytes(tensor.head_dim);
      auto* data = static_cast<std::byte*>(tensor.data);
      const std::vector<std::byte> right(data, data + row * static_cast<size_t>(heads * length));
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t s = 0; s < length; ++s) {
          std::memcpy(data + row * static_cast<size_t>(h * length + s),
                      right.data() + row * static_cast<size_t>(s * heads + h), row);
        }
      }
    }
  }

  void modify_inputs(const Inputs& inputs, const Outputs&) {
    auto* first = static_cast<unsigned char*>(const_cast<void*>(inputs.k.data));
    first[0] ^= 1;
  }

  static void linger(std::chrono::duration<double> time) {
    const auto start = Clock::now();
    while (Clock::now() - start < time) {
    }
  }

  void keep_first(const Outputs& outputs) {
    first_.clear();
    for (const auto& [data, size] : memory(outputs)) first_.emplace_back(data, data + size);
  }

  void copy_first(const Outputs& outputs) {
    size_t i = 0;
    for (const auto& [data, size] : memory(outputs)) std::memcpy(data, first_[i++].data(), size);
  }

  void run_behind_the_back(const Inputs& inputs, const Outputs& outputs) {
    if (left_running_.joinable()) left_running_.join();
    left_running_ = std::thread([this, inputs, outputs] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      session_->run(inputs, outputs);
    });
  }

  size_t bytes(int64_t elements) const {
    return static_cast<size_t>(elements * element_size(problem_.dtype));
  }

  // Every output's bytes.
  std::vector<std::pair<std::byte*, size_t>> memory(const Outputs& outputs) const {
    std::vector<std::pair<std::byte*, size_t>> blocks;
    for (const TensorView& tensor : tensors(problem_, outputs)) {
      blocks.emplace_back(static_cast<std::byte*>(tensor.data), bytes(tensor.elements()));
    }
    if (problem_.pass == Pass::forward) {
      blocks.emplace_back(
          reinterpret_cast<std::byte*>(outputs.logsumexp),
          static_cast<size_t>(problem_.batch * problem_.q_heads * problem_.q_len) * sizeof(float));
    }
    return blocks;
  }

  Problem problem_;
  Device& device_;
  Fault fault_;
  std::unique_ptr<Session> session_;
  std::vector<std::vector<std::byte>> first_;
  std::thread left_running_;
  int runs_ = 0;
};

class FaultyProvider : public Provider {
 public:
  std::string_view name() const override { return "faulty"; }
  std::string_view description() const override { return "misbehaves as $FLASHBENCH_FAULT says"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  std::optional<std::string> why_unsupported(const Problem& problem,
                                             const DeviceInfo& info) const override {
    return tiled().why_unsupported(problem, info);
  }
  int64_t workspace_bytes(const Problem& problem, const DeviceInfo& info) const override {
    return tiled().workspace_bytes(problem, info);
  }
  std::unique_ptr<Session> prepare(const Problem& problem, Device& device) const override {
    return std::make_unique<FaultySession>(problem, device, tiled().prepare(problem, device));
  }

 private:
  static const Provider& tiled() { return *choose_providers({"tiled"}, DeviceKind::cpu).at(0); }
};

}  // namespace

std::unique_ptr<Provider> make_faulty_provider() {
  return std::make_unique<FaultyProvider>();
}

}  // namespace flashbench
