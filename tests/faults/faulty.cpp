// A plugin that misbehaves: it computes attention (examples/plugin/cpu), with the fault that
// $FLASHBENCH_FAULT names:
//
//   KIND[=VALUE][@TEXT]   only for problems whose text contains TEXT, if there is one; they read
//                         like forward/fp32/none/bshd/b1/hq2/hkv2/q33/k33/d16
//
//   crash_at_load  dies when it is loaded
//   crash          dies of SIGSEGV
//   abort          std::abort() after some last words
//   exit           ends the process with code 0
//   error          reports an error
//   garbage        reports one with an invalid status and an invalid text without terminating 0
//   refuse         refuses the problem in supports
//   refuse_late    refuses it in prepare
//   crash_early    dies in supports
//   crash_late     dies when its session ends
//   crash_beside   dies 50 ms after its second run, whoever is at work then
//   hang           never returns
//   deaf           never returns, with SIGUSR1 ignored and, unless FLASHBENCH_HEARS is set, SIGTERM
//   kill_parent    kills whoever started the process
//   out_of_memory  asks for a pebibyte
//   huge_output    prints 64 MiB to stdout and stderr
//   nan            one NaN in the outputs
//   wrong_shape    writes them in the other layout
//   out_of_bounds  writes one element past an output
//   early_return   timed runs write nothing
//   stale          later runs copy the first one's outputs
//   modify_inputs  changes one element of K
//   left_running   a thread writes after run returned
//   spinning       a thread spins from the first run on
//   child          an orphaned child process does
//   daemon         the same in a session of its own; it writes its number to $FLASHBENCH_DAEMON
//   daemon_crash   the same, and then it dies
//   fork           a child of the first run returns from it
//   fork_by_number the same, by the system call alone
//   round_up       changes the direction of rounding, in prepare and in each run
//   flush_at_load  flushes small numbers to zero when it is loaded, as -ffast-math does
//   limit_memory   leaves the process no more memory, from its first run on
//   limit_at_load  the same, from its loading on
//   limit_for_good the same as limit_memory, by the hard limit
//   slow=F         each run takes F of its own time longer
//
// `crash` takes the device with it if $FLASHBENCH_LOST_DEVICE names a file: it makes that file, and
// a worker that finds it cannot start (lost_device.c). Without $FLASHBENCH_FAULT it is correct.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include "flashbench/plugin.h"

extern "C" {
#include "attention.h"
}

namespace {

constexpr int kFirstTimedRun = 1;  // run 0 is verified first
constexpr int64_t kPebibyte = int64_t{1} << 50;

// ---- its settings

struct Fault {
  std::string kind;
  double value = 0;
};

std::string text_of(const flashbench_problem& p) {
  const char* const masks[] = {"none", "causal_top_left", "causal_bottom_right"};
  char text[256];
  std::snprintf(text, sizeof(text), "%s/fp32/%s/%s/b%lld/hq%lld/hkv%lld/q%lld/k%lld/d%lld",
                p.pass == FLASHBENCH_FORWARD ? "forward" : "backward", masks[p.mask],
                p.layout == FLASHBENCH_LAYOUT_BSHD ? "bshd" : "bhsd",
                static_cast<long long>(p.batch), static_cast<long long>(p.q_heads),
                static_cast<long long>(p.kv_heads), static_cast<long long>(p.q_len),
                static_cast<long long>(p.kv_len), static_cast<long long>(p.head_dim));
  return text;
}

std::string told() {
  const char* variable = std::getenv("FLASHBENCH_FAULT");
  return variable == nullptr ? "" : variable;
}

Fault fault_for(const flashbench_problem& problem) {
  std::string text = told();
  if (const size_t at = text.find('@'); at != std::string::npos) {
    if (text_of(problem).find(text.substr(at + 1)) == std::string::npos) return {};
    text.resize(at);
  }
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return {text};
  return {text.substr(0, equals), std::stod(text.substr(equals + 1))};
}

void flush_to_zero() {
#ifdef __x86_64__
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

void limit_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = 1;
  if (told() == "limit_for_good") limit.rlim_max = 1;
  setrlimit(RLIMIT_AS, &limit);
}

__attribute__((constructor)) void misbehave_at_load() {
  if (told() == "crash_at_load") std::raise(SIGSEGV);
  if (told() == "flush_at_load") flush_to_zero();
  if (told() == "limit_at_load") limit_memory();
}

// ---- what it computes

tensor tensor_of(const flashbench_tensor& t) {
  return {static_cast<float*>(t.data), t.strides[0], t.strides[1], t.strides[2], nullptr, 0, 0};
}

attention_problem problem_of(const flashbench_problem& p) {
  attention_problem problem{};
  problem.batch = p.batch;
  problem.q_heads = p.q_heads;
  problem.kv_heads = p.kv_heads;
  problem.q_len = p.q_len;
  problem.kv_len = p.kv_len;
  problem.head_dim = problem.head_dim_v = p.head_dim;
  problem.scale = static_cast<float>(p.scale);
  problem.diagonal = p.mask == FLASHBENCH_MASK_CAUSAL_TOP_LEFT ? 0 : p.kv_len - p.q_len;
  problem.left = -1;
  problem.right = p.mask == FLASHBENCH_MASK_NONE ? -1 : 0;
  problem.logsumexp_stride = p.q_len;
  return problem;
}

// ---- how it misbehaves

struct Status {
  flashbench_status status = FLASHBENCH_OK;
  std::string why;
};

struct Memory {
  float* data;
  size_t floats;
};

}  // namespace

struct flashbench_session {
 public:
  explicit flashbench_session(const flashbench_problem& problem)
      : fault(fault_for(problem)),
        p_(problem),
        scores_(static_cast<size_t>(attention_forward_workspace(&attention_))) {}

  ~flashbench_session() {
    if (fault.kind == "crash_late") std::raise(SIGSEGV);
    if (left_running_.joinable()) left_running_.join();
  }

  Status run(const flashbench_tensors& t) {
    const int number = runs_++;
    const double start = processor_seconds();
    if (fault.kind == "left_running") return run_behind_the_back(t);
    if (fault.kind == "early_return" && number >= kFirstTimedRun) return {};
    if (fault.kind == "stale" && number >= kFirstTimedRun) return copy_first(t);
    attend(t);
    if (fault.kind == "slow") return linger((processor_seconds() - start) * fault.value);
    if (fault.kind == "stale") return keep_first(t);
    return misbehave(t);
  }

  const Fault fault;

 private:
  using Act = Status (flashbench_session::*)(const flashbench_tensors&);

  void attend(const flashbench_tensors& t) {
    const tensor q = tensor_of(t.q), k = tensor_of(t.k), v = tensor_of(t.v), o = tensor_of(t.o);
    if (p_.pass == FLASHBENCH_FORWARD) {
      attention_forward(&attention_, q, k, v, o, t.logsumexp, scores_.data());
    } else {
      attention_backward(&attention_, q, k, v, o, t.logsumexp, tensor_of(t.d_o), tensor_of(t.dq),
                         tensor_of(t.dk), tensor_of(t.dv));
    }
  }

  Status misbehave(const flashbench_tensors& t) {
    static const std::map<std::string, Act> acts{
        {"crash", &flashbench_session::crash},
        {"crash_beside", &flashbench_session::crash_beside},
        {"abort", &flashbench_session::abort},
        {"exit", &flashbench_session::exit},
        {"error", &flashbench_session::report_an_error},
        {"garbage", &flashbench_session::report_garbage},
        {"hang", &flashbench_session::hang},
        {"deaf", &flashbench_session::be_deaf},
        {"kill_parent", &flashbench_session::kill_parent},
        {"huge_output", &flashbench_session::print_a_lot},
        {"nan", &flashbench_session::write_nan},
        {"wrong_shape", &flashbench_session::write_other_layout},
        {"out_of_bounds", &flashbench_session::write_behind},
        {"modify_inputs", &flashbench_session::modify_inputs},
        {"spinning", &flashbench_session::leave_a_thread},
        {"child", &flashbench_session::leave_a_child},
        {"daemon", &flashbench_session::leave_a_child},
        {"daemon_crash", &flashbench_session::leave_a_child_and_crash},
        {"fork", &flashbench_session::return_twice},
        {"fork_by_number", &flashbench_session::return_twice},
        {"round_up", &flashbench_session::round_up},
        {"limit_memory", &flashbench_session::leave_no_memory},
        {"limit_for_good", &flashbench_session::leave_no_memory},
    };
    const auto act = acts.find(fault.kind);
    return act == acts.end() ? Status{} : (this->*act->second)(t);
  }

  Status crash(const flashbench_tensors&) {
    if (const char* marker = std::getenv("FLASHBENCH_LOST_DEVICE")) std::ofstream(marker) << "lost";
    std::raise(SIGSEGV);
    return {};
  }

  Status abort(const flashbench_tensors&) {
    std::fputs("faulty: these are my last words\n", stderr);
    std::abort();
  }

  Status exit(const flashbench_tensors&) { std::_Exit(0); }

  Status report_an_error(const flashbench_tensors&) {
    return {FLASHBENCH_ERROR, "reported, as told"};
  }

  Status report_garbage(const flashbench_tensors&) { return {77, std::string(10000, '\xff')}; }

  Status hang(const flashbench_tensors&) {
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

  Status be_deaf(const flashbench_tensors& t) {
    std::signal(SIGUSR1, SIG_IGN);  // signals to the test that this point is reached
    if (std::getenv("FLASHBENCH_HEARS") == nullptr) std::signal(SIGTERM, SIG_IGN);
    return hang(t);
  }

  Status kill_parent(const flashbench_tensors&) {
    kill(getppid(), SIGKILL);
    return {};
  }

  Status print_a_lot(const flashbench_tensors&) {
    const std::string line(1023, 'x');
    for (int i = 0; i < (32 << 10); ++i) {
      std::fprintf(stdout, "%s\n", line.c_str());
      std::fprintf(stderr, "%s\n", line.c_str());
    }
    return {};
  }

  Status write_nan(const flashbench_tensors& t) {
    *outputs(t)[0].data = std::nanf("");
    return {};
  }

  // For dense bshd tensors.
  Status write_other_layout(const flashbench_tensors& t) {
    for (const flashbench_tensor& output : tensors(t)) {
      const auto heads = static_cast<size_t>(output.sizes[1]);
      const auto length = static_cast<size_t>(output.sizes[2]);
      const auto row = static_cast<size_t>(output.sizes[3]);
      auto* data = static_cast<float*>(output.data);
      const std::vector<float> right(data, data + row * heads * length);
      for (size_t h = 0; h < heads; ++h) {
        for (size_t s = 0; s < length; ++s) {
          std::memcpy(data + row * (h * length + s), right.data() + row * (s * heads + h),
                      row * sizeof(float));
        }
      }
    }
    return {};
  }

  Status write_behind(const flashbench_tensors& t) {
    const Memory output = outputs(t)[0];
    output.data[output.floats] = 1;
    return {};
  }

  Status modify_inputs(const flashbench_tensors& t) {
    static_cast<unsigned char*>(t.k.data)[0] ^= 1;
    return {};
  }

  [[noreturn]] static void spin() {
    volatile bool forever = true;
    while (forever) {
    }
    std::abort();
  }

  Status crash_beside(const flashbench_tensors&) {
    if (runs_ != 2) return {};
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      std::raise(SIGSEGV);
    }).detach();
    return {};
  }

  Status leave_a_thread(const flashbench_tensors&) {
    if (runs_ == 1) std::thread(spin).detach();
    return {};
  }

  // A child that ends at once starts it, so that the process has no parent of its own.
  Status leave_a_child(const flashbench_tensors&) {
    if (runs_ != 1) return {};
    const pid_t between = fork();
    if (between == 0) {
      if (const pid_t daemon = fork(); daemon != 0) {
        if (const char* file = std::getenv("FLASHBENCH_DAEMON")) std::ofstream(file) << daemon;
        _exit(0);
      }
      if (fault.kind != "child") setsid();
      spin();
    }
    waitpid(between, nullptr, 0);
    return {};
  }

  Status leave_a_child_and_crash(const flashbench_tensors& t) {
    leave_a_child(t);
    return crash(t);
  }

  // As after an exec that fails.
  Status return_twice(const flashbench_tensors&) {
    if (runs_ == 1) static_cast<void>(fault.kind == "fork" ? fork() : syscall(SYS_fork));
    return {};
  }

  Status round_up(const flashbench_tensors&) {
    std::fesetround(FE_UPWARD);
    return {};
  }

  Status leave_no_memory(const flashbench_tensors&) {
    if (runs_ == 1) limit_memory();
    return {};
  }

  // Uses this thread's processor time, so that waits do not change the share.
  static double processor_seconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  static Status linger(double seconds) {
    const double start = processor_seconds();
    while (processor_seconds() - start < seconds) {
    }
    return {};
  }

  Status keep_first(const flashbench_tensors& t) {
    first_.clear();
    for (const Memory& output : outputs(t)) {
      first_.emplace_back(output.data, output.data + output.floats);
    }
    return {};
  }

  Status copy_first(const flashbench_tensors& t) {
    size_t i = 0;
    for (const Memory& output : outputs(t)) {
      std::memcpy(output.data, first_[i++].data(), output.floats * sizeof(float));
    }
    return {};
  }

  Status run_behind_the_back(const flashbench_tensors& t) {
    if (left_running_.joinable()) left_running_.join();
    left_running_ = std::thread([this, t] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      attend(t);
    });
    return {};
  }

  std::vector<flashbench_tensor> tensors(const flashbench_tensors& t) const {
    if (p_.pass == FLASHBENCH_FORWARD) return {t.o};
    return {t.dq, t.dk, t.dv};
  }

  // Every dense output's memory.
  std::vector<Memory> outputs(const flashbench_tensors& t) const {
    std::vector<Memory> blocks;
    for (const flashbench_tensor& output : tensors(t)) {
      blocks.push_back({static_cast<float*>(output.data),
                        static_cast<size_t>(output.sizes[0] * output.sizes[1] * output.sizes[2] *
                                            output.sizes[3])});
    }
    if (p_.pass == FLASHBENCH_FORWARD) {
      blocks.push_back({t.logsumexp, static_cast<size_t>(p_.batch * p_.q_heads * p_.q_len)});
    }
    return blocks;
  }

  flashbench_problem p_;
  attention_problem attention_ = problem_of(p_);
  std::vector<float> scores_;
  std::vector<std::vector<float>> first_;
  std::thread left_running_;
  int runs_ = 0;
};

namespace {

// ---- the interface

// Leaves out the terminating 0 if the text is too long, which the tool must survive.
flashbench_status reported(const Status& status, char* why, size_t why_bytes) {
  std::memcpy(why, status.why.data(), std::min(why_bytes, status.why.size()));
  return status.status;
}

flashbench_status supports(const flashbench_problem* p, const flashbench_device*, char* why,
                           size_t why_bytes) {
  if (p->dtype != FLASHBENCH_FP32) {
    return reported({FLASHBENCH_UNSUPPORTED, "fp32 only"}, why, why_bytes);
  }
  const std::string fault = fault_for(*p).kind;
  if (fault == "crash_early") std::raise(SIGSEGV);
  if (fault != "refuse") return FLASHBENCH_OK;
  return reported({FLASHBENCH_UNSUPPORTED, "refused, as told"}, why, why_bytes);
}

flashbench_status workspace_bytes(const flashbench_problem* p, const flashbench_device*,
                                  int64_t* bytes, char*, size_t) {
  *bytes = fault_for(*p).kind == "out_of_memory" ? kPebibyte : 0;
  return FLASHBENCH_OK;
}

flashbench_status prepare(const flashbench_problem* p, const flashbench_device*, void*, int64_t,
                          flashbench_session** session, char* why, size_t why_bytes) {
  if (fault_for(*p).kind == "refuse_late") {
    return reported({FLASHBENCH_UNSUPPORTED, "refused late, as told"}, why, why_bytes);
  }
  *session = new flashbench_session(*p);
  if ((*session)->fault.kind == "round_up") std::fesetround(FE_UPWARD);
  return FLASHBENCH_OK;
}

flashbench_status run(flashbench_session* session, const flashbench_tensors* t, void*, char* why,
                      size_t why_bytes) {
  return reported(session->run(*t), why, why_bytes);
}

void destroy(flashbench_session* session) {
  delete session;
}

const char* kernel(const flashbench_session*) {
  return "attention.c";
}

}  // namespace

extern "C" const uint32_t flashbench_plugin_abi_version = FLASHBENCH_PLUGIN_ABI_VERSION;
// The table ends before `features`, as in plugins that are older than it: all bits are set, and the
// tool must not believe them.
extern "C" const flashbench_plugin flashbench_plugin_table = {
    offsetof(flashbench_plugin, features),
    "misbehaves as $FLASHBENCH_FAULT says",
    FLASHBENCH_CPU,
    supports,
    workspace_bytes,
    prepare,
    run,
    destroy,
    kernel,
    nullptr,
    ~uint64_t{0}};
