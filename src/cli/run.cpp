#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <variant>

#include "attention/error.h"
#include "case/dump.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/npy_problem.h"
#include "cli/numbers.h"
#include "cli/outputs.h"
#include "files/atomic_file.h"
#include "plan/axis.h"
#include "plan/input_files.h"
#include "report/table.h"
#include "sweep/sweep.h"

namespace flashbench {

namespace {

struct RunFlags {
  std::map<std::string_view, std::string> axes;  // by name; empty: not given
  std::string q, k, v, d_o, cu_seqlens_q, cu_seqlens_k, dump;
  DeviceFlags device;
  ProgramFlags program;
  MeasureFlags measure;
  IsolationFlags isolation;
  ExportFlags exports;
  bool no_time = false, quiet = false;
};

// What a config must say and a command line need not.
AxisValues values_without_flags() {
  return {{"q_heads", 8}, {"seq", 1024}, {"head_dim", 64}};
}

// `text` is a value of the axis: the options' checks have seen to that.
Axis::Json value_of(const Axis& axis, const std::string& text) {
  if (std::holds_alternative<Axis::Names>(axis.values)) return text;
  if (const Axis::Objects* objects = axis.objects()) return objects->from_option(text);
  if (std::holds_alternative<Axis::Reals>(axis.values)) return std::stod(text);
  return std::stoull(text);
}

bool is_given(const RunFlags& flags, std::string_view name) {
  const auto found = flags.axes.find(name);
  return found != flags.axes.end() && !found->second.empty();
}

// An axis that sets others, beside its shorthands, which are overridden.
void require_no_conflict(const RunFlags& flags, const Axis& setting) {
  if (setting.role == Axis::Role::shorthand) return;
  for (const std::string_view set : setting.sets) {
    if (!is_given(flags, set)) continue;
    throw BadInput(fmt::format("{} cannot be combined with {}: {}", setting.option(),
                               axis(set).option(), setting.why));
  }
}

// The files that options name, but for those of tensors.
std::vector<std::string> files_of_options(const RunFlags& flags) {
  std::vector<std::string> files;
  for (const auto& [name, text] : flags.axes) {
    if (text.empty() || axis(name).objects() == nullptr) continue;
    for (std::string& file : files_named_in(value_of(axis(name), text))) {
      files.push_back(std::move(file));
    }
  }
  for (const std::string& file : {flags.cu_seqlens_q, flags.cu_seqlens_k}) {
    if (!file.empty()) files.push_back(file);
  }
  return files;
}

AxisValues values_of(const RunFlags& flags) {
  AxisValues values = values_without_flags();
  for (const auto& [name, text] : flags.axes) {
    if (text.empty()) continue;
    require_no_conflict(flags, axis(name));
    try {
      values[name] = value_of(axis(name), text);
    } catch (const std::invalid_argument& error) {
      throw BadAxis(axis(name), error.what());
    }
  }
  return values;
}

// The case that the options say.
Case make_case_of(const RunFlags& flags) {
  try {
    return make_case(values_of(flags));
  } catch (const BadAxis& bad) {
    throw BadInput(fmt::format("{}: {}", axis(bad.name).option(), bad.what()));
  }
}

bool has_files(const RunFlags& flags) {
  return !flags.q.empty() || !flags.k.empty() || !flags.v.empty() || !flags.d_o.empty();
}

InputSpec files_of(const RunFlags& flags, Pass pass) {
  if (flags.q.empty() || flags.k.empty() || flags.v.empty()) {
    throw BadInput("--q, --k and --v go together: expected a .npy file for each");
  }
  if (pass == Pass::backward && flags.d_o.empty()) {
    throw BadInput("--pass backward with --q, --k, --v needs --do as well");
  }
  if (pass == Pass::forward && !flags.d_o.empty()) {
    throw BadInput("--do is for --pass backward; a forward pass does not read it");
  }
  return {.distribution = Distribution::files,
          .q = flags.q,
          .k = flags.k,
          .v = flags.v,
          .d_o = flags.d_o};
}

// Their tensors are ragged.
void take_cu_seqlens(const RunFlags& flags, Problem& problem) {
  if (flags.cu_seqlens_q.empty() && flags.cu_seqlens_k.empty()) return;
  if (flags.cu_seqlens_q.empty() || flags.cu_seqlens_k.empty() || !has_files(flags)) {
    throw BadInput("--cu-seqlens-q and --cu-seqlens-k go together, and with --q, --k and --v");
  }
  if (is_given(flags, "lengths")) {
    throw BadInput("--cu-seqlens-q and --cu-seqlens-k cannot be combined with --lengths");
  }
  if (is_given(flags, "layout") && !problem.is_ragged()) {
    throw BadInput(fmt::format("--cu-seqlens-q and --cu-seqlens-k are for --layout ragged, got {}",
                               name(problem.layout)));
  }
  problem.layout = Layout::ragged;
  problem.set_lengths(read_cu_seqlens(flags.cu_seqlens_q, flags.cu_seqlens_k));
}

// Pages do not say how many of their rows are a request's.
void require_key_lengths(const RunFlags& flags, const Problem& problem) {
  if (!problem.block_table || problem.lengths || is_given(flags, "kv_len") ||
      is_given(flags, "seq")) {
    return;
  }
  throw BadInput(
      "--block-table with --k and --v needs the lengths of the keys: --cu-seqlens-q and "
      "--cu-seqlens-k, --lengths or --kv-len");
}

// What options say beside files, which say it, too.
void require_agreement(const RunFlags& flags, const Case& item) {
  for (const std::string_view input : {"distribution", "seed"}) {
    if (!is_given(flags, input)) continue;
    throw BadInput(fmt::format("{} cannot be combined with --q, --k and --v, which are the inputs",
                               axis(input).option()));
  }
  for (const auto& [name, text] : flags.axes) {
    const Axis& given = axis(name);
    if (text.empty() || !given.of_problem || given.objects() != nullptr) continue;
    const bool several = given.role == Axis::Role::shorthand;
    for (const std::string_view one : several ? given.sets : std::vector{given.name}) {
      if (several && is_given(flags, one)) continue;
      const Axis& meant = axis(one);
      if (meant.get(item) == value_of(given, text)) continue;
      throw BadInput(fmt::format("{}: the files have {}{}, got {}", given.option(),
                                 several ? fmt::format("{} ", one) : "",
                                 meant.get(item).is_null() ? "none" : meant.text(item), text));
    }
  }
}

Case case_of(const RunFlags& flags) {
  Case item = make_case_of(flags);
  take_cu_seqlens(flags, item.problem);
  if (has_files(flags)) {
    require_key_lengths(flags, item.problem);
    const Dtype asked = item.problem.dtype;
    item.inputs = files_of(flags, item.problem.pass);
    take_shapes(item.problem, item.inputs);
    if (!flags.axes.at("dtype").empty() && asked != item.problem.dtype) {
      throw BadInput(fmt::format("{}: expected {}, found {} (uint16 arrays hold bf16 bits)",
                                 flags.q, name(asked), name(item.problem.dtype)));
    }
    require_agreement(flags, item);
  }
  if (const auto wrong = item.invalid()) throw BadInput(*wrong);
  return item;
}

SweepConfig config_of(const RunFlags& flags) {
  SweepConfig config;
  config.name = "run";
  config.cases = {case_of(flags)};
  flags.device.apply(config);
  flags.program.apply(config, flags.device);
  flags.measure.apply(config.measure);
  flags.isolation.apply(config.measure);
  config.json = {{"name", config.name}, {"case", config.cases[0].key()}};
  config.files = files_of_options(flags);
  return config;
}

// Some providers run only if they are named.
void hint_at_others(const std::vector<Record>& records) {
  const auto is_unsupported = [](const Record& r) { return r.status == Status::unsupported; };
  if (!std::ranges::all_of(records, is_unsupported)) return;
  fmt::print(stderr,
             "flashbench: no provider runs this here; `flashbench list` also has those that run "
             "only if --providers names them\n");
}

// Called before any work.
void check_dump(const std::string& folder, const std::vector<std::string>& providers,
                const std::vector<std::string>& inputs) {
  if (folder.empty()) return;
  for (const std::filesystem::path& file : files_of_dump(folder, providers)) {
    require_not_read({"--dump", file}, inputs);
  }
  make_folder(folder);
}

int run(const RunFlags& flags, const Invocation& invocation) {
  const SweepConfig config = config_of(flags);
  const std::vector<std::string> inputs = files_read_by(config);
  flags.exports.check(inputs);
  const std::unique_ptr<Runner> runner = flags.isolation.make_runner(config);
  check_dump(flags.dump, runner->providers(), inputs);
  SweepOptions options;
  options.argv = invocation.argv;
  options.cases.measure = config.measure;
  options.cases.time = !flags.no_time;
  options.ceilings = false;  // a sweep's roofline, not one problem's time
  options.cases.dump = flags.dump;
  Progress progress(stderr, Progress::mode_for(stderr, flags.quiet));
  const SweepOutcome outcome = run_sweep(config, *runner, nullptr, progress, options);

  flags.exports.write(outcome.result);
  if (!flags.exports.takes_stdout()) fmt::print("{}", to_table(outcome.result));
  const bool may_name_others = config.providers.empty() && config.program.empty();
  if (!flags.quiet && may_name_others) hint_at_others(outcome.result.records);
  return outcome.exit_code;
}

// The checks of an option, by what the values of its axis are.
struct Checks {
  CLI::Option& option;

  void operator()(Axis::Names names) const {
    std::erase(names, name(Distribution::files));  // what --q, --k and --v are for
    option.check(CLI::IsMember(names));
  }
  void operator()(const Axis::Integers& range) const {
    option.transform(from_to(range.least, range.most))->type_name("INT");
  }
  void operator()(const Axis::Reals& range) const {
    option.transform(from_to(range.least, range.most))->type_name("FLOAT");
  }
  void operator()(const Axis::Objects&) const { option.type_name("SPEC|JSON"); }
};

// Of every axis, but for shorthands that other axes divide.
void add_axes(CLI::App& command, RunFlags& flags) {
  const AxisValues without_flags = values_without_flags();
  const Case otherwise = make_case(without_flags);
  for (const Axis& axis : axes()) {
    const bool has_value = without_flags.contains(axis.name);
    if (axis.role == Axis::Role::shorthand && !has_value) continue;
    CLI::Option& option =
        *command.add_option(axis.option(), flags.axes[axis.name], std::string(axis.title));
    std::visit(Checks{option}, axis.values);
    const bool has_default = has_value || axis.role != Axis::Role::required;
    if (has_default && !axis.get(otherwise).is_null()) option.default_str(axis.text(otherwise));
  }
}

void add_tensor_flags(CLI::App& command, RunFlags& flags) {
  command
      .add_option("--q", flags.q,
                  "Q as .npy in the order of --layout, 4-D or ragged 3-D; the files give dtype and "
                  "sizes")
      ->type_name("FILE");
  command
      .add_option("--k", flags.k,
                  "K as .npy; with --block-table the pool, in the order of --kv-layout")
      ->type_name("FILE");
  command.add_option("--v", flags.v, "V as .npy")->type_name("FILE");
  command.add_option("--do", flags.d_o, "dO as .npy, for --pass backward")->type_name("FILE");
  command
      .add_option("--cu-seqlens-q", flags.cu_seqlens_q,
                  "Where the queries of each request begin in ragged tensors, then the total, as "
                  "int32 .npy")
      ->type_name("FILE");
  command.add_option("--cu-seqlens-k", flags.cu_seqlens_k, "The same of its keys and values")
      ->type_name("FILE");
  command
      .add_option("--dump", flags.dump,
                  "Write the inputs to DIR and each provider's outputs to DIR/PROVIDER, as .npy")
      ->type_name("DIR");
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  CLI::App& command =
      *app.add_subcommand("run", "Verify and time one problem, from flags or from .npy tensors");
  auto flags = std::make_shared<RunFlags>();
  add_axes(command, *flags);
  add_tensor_flags(command, *flags);
  flags->device.add(command);
  flags->program.add(command);
  flags->measure.add(command);
  flags->measure.add_repetitions(command);
  flags->isolation.add(command);
  flags->exports.add(command);
  command.add_flag("--no-time", flags->no_time, "Verify only");
  command.add_flag("--quiet", flags->quiet, "No progress on stderr");
  command.callback([flags, &invocation] { invocation.exit_code = run(*flags, invocation); });
}

}  // namespace flashbench
