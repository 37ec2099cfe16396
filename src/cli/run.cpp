#include <fmt/format.h>

#include <limits>
#include <memory>
#include <optional>

#include "attention/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/npy_problem.h"
#include "cli/numbers.h"
#include "device/atomic_file.h"
#include "report/table.h"
#include "sweep/sweep.h"

namespace flashbench {

namespace {

struct RunFlags {
  std::string pass = "forward", mask = "none", layout = "bshd", distribution = "normal";
  std::string placement = "contiguous";
  std::optional<std::string> dtype;
  int64_t batch = 1, q_heads = 8, head_dim = 64;
  std::optional<int64_t> kv_heads, q_len, kv_len, seq;
  std::optional<double> scale;
  uint64_t seed = 1;
  std::string q, k, v, d_o, dump;
  DeviceFlags device;
  ProgramFlags program;
  MeasureFlags measure;
  IsolationFlags isolation;
  ExportFlags exports;
  bool no_time = false, quiet = false;
};

constexpr int64_t kDefaultLength = 1024;

InputSpec inputs_of(const RunFlags& flags, Pass pass) {
  InputSpec inputs;
  inputs.seed = flags.seed;
  const bool any = !flags.q.empty() || !flags.k.empty() || !flags.v.empty() || !flags.d_o.empty();
  if (!any) {
    inputs.distribution = *parse<Distribution>(flags.distribution);
    return inputs;
  }
  if (flags.q.empty() || flags.k.empty() || flags.v.empty()) {
    throw BadInput("--q, --k and --v go together: expected a .npy file for each");
  }
  if (pass == Pass::backward && flags.d_o.empty()) {
    throw BadInput("--pass backward with --q, --k, --v needs --do as well");
  }
  if (pass == Pass::forward && !flags.d_o.empty()) {
    throw BadInput("--do is for --pass backward; a forward pass does not read it");
  }
  inputs.distribution = Distribution::files;
  inputs.q = flags.q;
  inputs.k = flags.k;
  inputs.v = flags.v;
  inputs.d_o = flags.d_o;
  return inputs;
}

Case case_of(const RunFlags& flags) {
  Case item;
  Problem& p = item.problem;
  p.pass = *parse<Pass>(flags.pass);
  p.mask = *parse<Mask>(flags.mask);
  p.layout = *parse<Layout>(flags.layout);
  p.scale = flags.scale;
  item.inputs = inputs_of(flags, p.pass);
  item.placement = *parse<Placement>(flags.placement);
  if (item.inputs.distribution == Distribution::files) {
    take_shapes(p, item.inputs);
    if (flags.dtype && *parse<Dtype>(*flags.dtype) != p.dtype) {
      throw BadInput(fmt::format("{}: expected {}, found {} (uint16 arrays hold bf16 bits)",
                                 flags.q, *flags.dtype, name(p.dtype)));
    }
    return item;
  }
  p.dtype = flags.dtype ? *parse<Dtype>(*flags.dtype) : Dtype::fp32;
  p.batch = flags.batch;
  p.q_heads = flags.q_heads;
  p.kv_heads = flags.kv_heads.value_or(flags.q_heads);
  p.q_len = flags.q_len.value_or(flags.seq.value_or(kDefaultLength));
  p.kv_len = flags.kv_len.value_or(flags.seq.value_or(kDefaultLength));
  p.head_dim = flags.head_dim;
  if (const auto wrong = p.invalid()) throw BadInput(*wrong);
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
  return config;
}

int run(const RunFlags& flags, const Invocation& invocation) {
  const SweepConfig config = config_of(flags);
  flags.exports.require_writable();
  if (!flags.dump.empty()) make_folder(flags.dump);
  const std::unique_ptr<Runner> runner = flags.isolation.make_runner(config);
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
  return outcome.exit_code;
}

template <typename Values>
CLI::IsMember one_of(const Values& values) {
  std::vector<std::string> names;
  for (auto value : values) names.emplace_back(name(value));
  return CLI::IsMember(names);
}

void add_problem_flags(CLI::App& command, RunFlags& flags) {
  command.add_option("--pass", flags.pass, "forward or backward")
      ->check(one_of(kPasses))
      ->capture_default_str();
  command
      .add_option("--dtype", flags.dtype, "fp32, fp16 or bf16 (default: fp32, or the files' own)")
      ->check(one_of(kDtypes));
  command.add_option("--mask", flags.mask, "none, causal_top_left or causal_bottom_right")
      ->check(one_of(kMasks))
      ->capture_default_str();
  command
      .add_option("--layout", flags.layout,
                  "Order of dimensions: bshd or bhsd (batch, sequence, heads, head dimension)")
      ->check(one_of(kLayouts))
      ->capture_default_str();
  const CLI::Validator heads = from_to(int64_t{1}, int64_t{1} << 20);
  const CLI::Validator length = from_to(int64_t{1}, int64_t{1} << 24);
  command.add_option("--batch", flags.batch, "Batch size")->transform(heads)->capture_default_str();
  command.add_option("--q-heads", flags.q_heads, "Query heads")
      ->transform(heads)
      ->capture_default_str();
  command.add_option("--kv-heads", flags.kv_heads, "K/V heads (default: as many as query heads)")
      ->transform(heads);
  command.add_option("--q-len", flags.q_len, "Query length")->transform(length);
  command.add_option("--kv-len", flags.kv_len, "K/V length")->transform(length);
  command.add_option("--seq", flags.seq, "Query and K/V length (default: 1024)")->transform(length);
  command.add_option("--head-dim", flags.head_dim, "Head dimension: a multiple of 8")
      ->transform(from_to(kHeadDimStep, kMaxHeadDim))
      ->capture_default_str();
  command.add_option("--scale", flags.scale, "Softmax scale (default: 1/sqrt(head_dim))")
      ->transform(from_to(-1e6, 1e6));
  std::vector<Distribution> distributions(kDistributions.begin(), kDistributions.end());
  std::erase(distributions, Distribution::files);  // what --q, --k and --v are for
  command
      .add_option("--distribution", flags.distribution,
                  "Distribution of the inputs (docs/measuring.md)")
      ->check(one_of(distributions))
      ->capture_default_str();
  command.add_option("--placement", flags.placement, "Placement of the tensors in memory")
      ->check(one_of(kPlacements))
      ->capture_default_str();
  command.add_option("--seed", flags.seed, "Seed of the inputs")
      ->transform(from_to(uint64_t{0}, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
}

void add_tensor_flags(CLI::App& command, RunFlags& flags) {
  command.add_option("--q", flags.q, "Q as .npy, 4-D in the order of --layout")->type_name("FILE");
  command.add_option("--k", flags.k, "K as .npy")->type_name("FILE");
  command.add_option("--v", flags.v, "V as .npy")->type_name("FILE");
  command.add_option("--do", flags.d_o, "dO as .npy, for --pass backward")->type_name("FILE");
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
  add_problem_flags(command, *flags);
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
