#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "attention/error.h"
#include "attention/exit_codes.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/numbers.h"
#include "files/atomic_file.h"
#include "files/read_file.h"
#include "tune/tune.h"
#include "worker/interrupt.h"

namespace flashbench {

namespace {

struct TuneFlags {
  DeviceFlags device;
  MeasureFlags measure;
  TuneOptions options;
  std::string table;
};

void print(const Tuned& tuned) {
  fmt::print("\nhead_dim {}, {}\n", tuned.problem.head_dim, name(tuned.problem.mask));
  for (const TunedCandidate& candidate : tuned.candidates) {
    if (candidate.median == 0) {
      fmt::print("  {:<44} {}\n", candidate.variant, candidate.reason);
      continue;
    }
    fmt::print("  {:<44} {:8.4g} ms {:8.1f} TFLOP/s {:+6.1f}%{}\n", candidate.variant,
               candidate.median * 1e3, tuned.problem.flops_convention() / candidate.median * 1e-12,
               (candidate.median / tuned.candidates.front().median - 1) * 100,
               candidate.blocks == tuned.best ? "  best" : "");
  }
  std::fflush(stdout);
}

std::string read_if_there(const std::string& path) {
  constexpr size_t kMaxTableBytes = size_t{1} << 20;
  return std::filesystem::exists(path) ? read_file(path, kMaxTableBytes) : "";
}

int tune_device(const TuneFlags& flags) {
  if (!flags.table.empty()) require_writable(flags.table);
  const auto device =
      make_device(flags.device.device.value_or("auto"), flags.device.threads.value_or(0));
  TuneOptions options = flags.options;
  flags.measure.apply(options.measure);
  watch_for_interrupts();

  fmt::print("{} ({}): bf16, {} tokens in sequences of {}, hidden size {}\n", device->info().name,
             device->info().instructions, options.total_tokens, options.length, options.hidden);
  const std::vector<Tuned> tuned =
      tune(*device, kernels::all_kernels(), options, print, interrupted);
  if (const int code = interrupt_exit_code()) return code;
  if (tuned.empty()) {
    throw BadInput(fmt::format("no kernel{} can be tuned on {}",
                               options.family.empty() ? "" : " of " + options.family,
                               name(device->info().kind)));
  }
  if (!flags.table.empty()) {
    write_file_atomically(flags.table,
                          merge_tuned(read_if_there(flags.table), device->info(), tuned));
  }
  return exit_codes::kOk;
}

}  // namespace

void add_tune(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("tune",
                                          "Time the block sizes that flashbench's own kernels can "
                                          "use on this device, and pick the best");
  auto flags = std::make_shared<TuneFlags>();
  command.add_option("--device", flags->device.device, "auto, cpu, cuda or cuda:N")
      ->type_name("DEVICE");
  command.add_option("--family", flags->options.family, "Tune only this kernel family, e.g. sm80")
      ->type_name("FAMILY");
  command.add_option("--head-dim", flags->options.head_dims, "Tune only these head dimensions")
      ->delimiter(',')
      ->check(CLI::IsMember(TuneOptions().head_dims))
      ->capture_default_str();
  command.add_option("--length", flags->options.length, "Length of queries and keys")
      ->transform(from_to(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--tokens", flags->options.total_tokens, "Tokens of all sequences together")
      ->transform(from_to(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--hidden", flags->options.hidden, "Columns of all heads together")
      ->transform(from_to(1, 1 << 16))
      ->capture_default_str();
  command
      .add_option("--table", flags->table,
                  "Once all are timed, write the best block sizes into this table and keep its "
                  "other rows; the "
                  "next build uses kernels/tuned_blocks.inc")
      ->type_name("FILE");
  flags->measure.add(command);
  command.callback([flags, &invocation] { invocation.exit_code = tune_device(*flags); });
}

}  // namespace flashbench
