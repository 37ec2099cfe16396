// The results of a sweep: one record for each case and provider, and the file that holds them.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attention/enum_names.h"
#include "attention/run_part.h"
#include "attention/schedule.h"
#include "measure/ceilings.h"
#include "measure/counters.h"
#include "measure/energy.h"
#include "measure/sampler.h"
#include "measure/stats.h"
#include "plan/config.h"
#include "report/wall_time.h"
#include "verify/oracle.h"

namespace flashbench {

// The status of a provider on a case:
//   ok             verified (and timed, if timing was requested)
//   failed         it gave a wrong answer, or changed what it may only read
//   unsupported    it reports that it does not support the case
//   skipped        not run: interrupted, or there was not enough memory for the case
//   out_of_memory  the device or the host had no memory for it
//   crashed        its worker process died
//   timeout        its worker process did not answer in time
//   error          it reported an error
enum class Status { ok, failed, unsupported, skipped, out_of_memory, crashed, timeout, error };
template <>
inline constexpr auto kNames<Status> = names_of<Status>({{Status::ok, "ok"},
                                                         {Status::failed, "failed"},
                                                         {Status::unsupported, "unsupported"},
                                                         {Status::skipped, "skipped"},
                                                         {Status::out_of_memory, "out_of_memory"},
                                                         {Status::crashed, "crashed"},
                                                         {Status::timeout, "timeout"},
                                                         {Status::error, "error"}});

// Memory of a provider's own run, as tracked by the device's allocator.
struct MemoryReport {
  MemoryUsage tracked;
  int64_t process_growth = 0;  // growth of the process's resident set during the run
};

// Whether runs on the same inputs gave the same outputs.
struct Determinism {
  enum class Kind {
    bitwise,  // the same bits every time
    bounded,  // other bits, but every run was judged right
    varies,   // a run was judged wrong
  };
  Kind kind = Kind::bitwise;
  int runs = 0;
  double max_lambda = 0;  // largest over the runs whose bits differ from the first's
};
template <>
inline constexpr auto kNames<Determinism::Kind> =
    names_of<Determinism::Kind>({{Determinism::Kind::bitwise, "bitwise"},
                                 {Determinism::Kind::bounded, "bounded"},
                                 {Determinism::Kind::varies, "varies"}});

// The distance between the outputs of two providers on the same case.
struct Distance {
  double max_abs = 0, mean_abs = 0;
};

// What several devices did that shared the work: medians over runs after the samples, in which
// whole runs, only their computing and only their copying took turns. Seconds.
struct GroupReport {
  std::vector<double> rank_seconds;  // of whole runs, by rank
  std::vector<int64_t> sent_bytes;   // of one run, by rank
  double everything = 0, computing = 0, copying = 0;
  bool shares_gpus = false;  // ranks are on the same GPU: nothing is gained by sharing
  int gpus_at_work = 1;      // GPUs whose peaks add up; 1 on a CPU, whose threads are in groups

  double skew() const;                    // of the slowest rank over the mean, less 1
  double exposed() const;                 // seconds of copying that no computing hides, 0 at least
  std::optional<double> overlap() const;  // share of the copying that is hidden; empty without any

  // Bytes a second by nccl-tests' convention; empty without any copying.
  std::optional<double> bus_bandwidth() const;
};

// A part of a run alone, in the rounds of the case.
struct PartTime {
  RunPart part;
  Measurement measurement;
};

// One provider on one case. Absent figures are empty, never 0.
struct Record {
  Case item;
  std::string provider;
  std::optional<PluginFile> plugin;  // the file, if the provider is a plugin
  std::string program;  // other program that ran it (sweep --program); empty: flashbench
  std::string source;   // the file that it was merged from (compare/beside.h); empty: none
  std::string kernel;
  std::string accumulator;  // of a problem whose products are of bytes, as the provider declares it
  std::string output_dtype;  // of that problem
  Status status = Status::skipped;
  std::string reason;                      // a sentence, unless ok
  Verdict verdict;                         // of the timed outputs, if it was timed
  std::optional<Determinism> determinism;  // if requested
  std::optional<Distance> from_naive;      // of its outputs, if naive's were right too
  std::optional<Measurement> measurement;
  std::optional<Measurement> gemm;      // the GEMM ceiling in the same rounds
  double gemm_flops = 0;                // FLOPs of one of its runs
  std::vector<PartTime> parts;          // of the run, if it has several
  std::vector<Ceiling> round_ceilings;  // others in the same rounds (measure/round_ceilings.h)
  std::optional<double>
      prepare_seconds;  // by the wall, to say that it can and get ready: plans, workspace
  std::optional<double> plan_seconds;  // on the host, for these lengths, before a run
  std::optional<Schedule> schedule;
  std::optional<GroupReport> group;  // if several devices shared the work
  std::optional<int64_t> requested_bytes;
  std::optional<MemoryReport> memory;
  std::vector<KernelFacts> kernels;       // of one run, in order, if the device reports them
  std::optional<Energy> energy;           // of back-to-back runs
  std::optional<CounterReport> counters;  // if it was timed
  WallTime wall;                          // a case's shared phases are in the first of its rows
};

// The content of a result file.
struct SweepResult {
  nlohmann::ordered_json meta;     // argv, version, git commit, time, FLOP and byte rules
  nlohmann::ordered_json devices;  // processor, threads, memory, libraries
  nlohmann::ordered_json config;
  std::vector<Ceiling> ceilings;
  std::vector<Record> records;
};

struct NamedResult {
  std::string source;  // file name
  SweepResult result;
};

// Figures derived from a record. Times in seconds.
struct Performance {
  double median = 0, min = 0;
  std::optional<Interval> interval;
  double flops_per_second = 0;             // exact unmasked pairs
  double convention_flops_per_second = 0;  // FlashAttention's convention
};
std::optional<Performance> performance(const Record&);

// The median of the device's reported state over the samples; the share of samples after which its
// clock was held down. Empty if the device reported nothing.
std::optional<double> median_state(const Record&, double DeviceState::*member);
std::optional<double> throttled_share(const Record&);

// The median of naive on the same case divided by this record's. Empty if either was not timed, or
// if they come from two files, because ratios need times taken in the same rounds.
std::optional<double> speedup_vs_naive(const Record&, const std::vector<Record>& all);

// What a rate may exceed a ceiling by: both vary from sample to sample.
inline constexpr double kMostOverCeiling = 1.05;

// Takes back the times of a row that did not end well, and of what ran in its rounds.
void withdraw_times(Record&);

// The ceiling of this name in the record's rounds; null if there is none.
const Ceiling* round_ceiling(const Record&, std::string_view name);

// The ceiling of this name that was measured with the record: of its own file, else the result's.
// Null if there is none.
const Ceiling* measured_ceiling(const Record&, std::string_view name, const SweepResult&);

// Its rate; empty if there is none, or it is 0.
std::optional<double> measured_rate(const Record&, std::string_view name, const SweepResult&);

// A share of a ceiling; empty beyond kMostOverCeiling: then it is no ceiling.
std::optional<double> if_possible(std::optional<double> share);

// FLOP/s over those of the GEMM in the same rounds, on as many GPUs, without an upper limit; empty
// if either was not timed.
std::optional<double> over_gemm(const Record&);

// The provider that exceeds the GEMM in the record's rounds by the most, if that is more than a
// ceiling can be exceeded by. The GEMM is then not a ceiling for any provider of the case. Null if
// there is none.
const Record* beyond_ceiling(const Record&, const std::vector<Record>& all);

// over_gemm() if the GEMM is a ceiling; else empty.
std::optional<double> share_of_ceiling(const Record&, const std::vector<Record>& all);

// FLOP/s over those of the pipe that computes the dtype's products (measure/pipes.h), at the SM
// clock of the row's samples, on as many GPUs. More than 1 is impossible and means that the clock
// or the claimed work is wrong. Empty on a CPU, and if the clock or the pipe is not known.
std::optional<double> over_pipe(const Record&, const SweepResult&);

// over_pipe() if it is possible; else empty.
std::optional<double> share_of_peak(const Record&, const SweepResult&);

// Strong scaling: the time of one of the devices alone, over that of all and their number. The one
// is `tiled` in the same case and file. Empty if either was not timed, or if ranks share a GPU.
std::optional<double> strong_efficiency(const Record&, const std::vector<Record>& all);

// The time of one device alone for the work of one of several, over the time of all: 1 if neither
// copying nor waiting costs anything. The one is a ceiling in the same rounds. Empty if either was
// not timed.
std::optional<double> same_work_efficiency(const Record&);

// The time of `tiled` on the inputs as they are, over that of a row whose provider rounds them
// first. The one is a ceiling in the same rounds. Empty if either was not timed.
std::optional<double> speedup_vs_unrounded(const Record&);

// FLOPs per byte moved: measured bytes if there are any, else requested bytes.
std::optional<double> arithmetic_intensity(const Record&);

// Operations that tensor cores were counted to do, over the problem's FLOPs, and what the ratio
// means.
//   as_claimed  the FLOPs, plus at most what whole tiles and padding of head_dim add
//   fewer       work was left out, or done elsewhere
//   more        work was done twice, or where the mask makes it needless
// The limits allow for tiles of 256 x 256, for head_dim up to the next of 64, 128 and 256, and for
// 2% either way. Empty if nothing was counted, or if the problem is fp32, which does not use tensor
// cores.
struct TensorOperations {
  double counted = 0, ratio = 0;
  std::string_view verdict;
};
std::optional<TensorOperations> tensor_operations(const Record&);

// The largest error over all tensors of a verdict; empty if nothing was checked.
struct WorstError {
  double max_abs = 0, ratio = 0, lambda = 0;
  std::optional<double> rel_rms{};
};
std::optional<WorstError> worst_error(const Verdict&);

// "passed", "sampled" (passed on sampled rows), "coarse" (passed, but far from the exact values),
// "failed" or "not_checked".
std::string_view verified(const Verdict&);

// The command that runs this record alone, for a POSIX shell.
std::string repro_command(const Record&);

}  // namespace flashbench
