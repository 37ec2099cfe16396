#include "cli/baseline_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <set>

#include "attention/error.h"
#include "cli/errors.h"
#include "cli/standard_streams.h"
#include "compare/baseline.h"
#include "compare/present.h"
#include "compare/until_conclusive.h"
#include "files/atomic_file.h"
#include "plan/input_files.h"
#include "report/environment.h"
#include "report/json.h"

namespace flashbench {

namespace {

void require_common_case(const LoadedBaseline& baseline, const SweepConfig& config) {
  std::set<std::string> planned;
  for (const Case& item : config.cases) planned.insert(item.key());
  const auto& records = baseline.result.records;
  if (planned.empty()) return;  // a shard without cases
  if (std::none_of(records.begin(), records.end(),
                   [&](const Record& record) { return planned.contains(record.item.key()); })) {
    throw BaselineError(fmt::format("{}: has none of the cases to be run", baseline.source));
  }
}

void save_baseline(const std::filesystem::path& path, const SweepResult& result) {
  write_file_atomically(path, to_json(result));
  fmt::print("baseline saved: {}\n", path.string());
}

}  // namespace

double parse_fraction(const std::string& text) {
  const bool percent = text.ends_with('%');
  const char* end = text.data() + text.size() - (percent ? 1 : 0);
  double value = -1;
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (percent) value /= 100;
  if (error != std::errc() || stopped != end || !(value >= 0 && value < 1)) {
    throw BadInput(fmt::format("expected a fraction like 1% or 0.01, got \"{}\"", text));
  }
  return value;
}

void ComparisonFlags::add(CLI::App& app) {
  app.add_option("--noise-threshold", noise_threshold,
                 "Smaller changes of time are neither FASTER nor SLOWER")
      ->type_name("PERCENT")
      ->capture_default_str();
  app.add_flag("--fail-on-regression", fail_on_regression,
               "Exit with code 1 if a row is SLOWER or NEWLY_WRONG");
  app.add_option("--allow-different", allow_different,
                 "Compare even if this condition differs, e.g. compiler (repeatable)")
      ->type_name("KEY")
      ->allow_extra_args(false);
}

CompareOptions ComparisonFlags::options() const {
  require_known_keys(allow_different);
  CompareOptions options;
  options.noise_threshold = parse_fraction(noise_threshold);
  options.allow_different = allow_different;
  return options;
}

int ComparisonFlags::exit_code(const Comparison& comparison) const {
  return fail_on_regression && comparison.regressed() ? exit_codes::kRegression : exit_codes::kOk;
}

void BaselineFlags::add(CLI::App& app) {
  CLI::Option* option =
      app.add_option("--baseline", baseline,
                     "Compare with a result file, or with the baseline saved as NAME")
          ->type_name("FILE|NAME");
  app.add_option("--save-baseline", save,
                 "Save the result as the baseline NAME, if every row ends well")
      ->type_name("NAME");
  app.add_option("--until-conclusive", until_conclusive,
                 "With --baseline: continue to measure the undecided cases, for at most this long")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e6));
  how.add(app);
  for (const char* name :
       {"--noise-threshold", "--fail-on-regression", "--allow-different", "--until-conclusive"}) {
    app.get_option(name)->needs(option);
  }
}

std::optional<LoadedBaseline> BaselineFlags::load(const std::filesystem::path& folder,
                                                  const SweepConfig& config,
                                                  const FilterFlags& filter,
                                                  const nlohmann::ordered_json& device) const {
  if (save) named_baseline(folder, *save, config.shard);  // throws if the name is invalid
  if (!baseline) return std::nullopt;
  const std::filesystem::path path = baseline_path(folder, *baseline, config.shard);
  if (is_baseline_name(*baseline) && !std::filesystem::exists(path)) {
    throw BaselineError(
        fmt::format("baseline {}: there is no such file; --save-baseline {} writes it",
                    path.string(), *baseline));
  }
  LoadedBaseline loaded{path.string(), {}, how.options()};
  if (until_conclusive) loaded.options = for_each_look(std::move(loaded.options));
  loaded.result = read_baseline(path);
  std::erase_if(loaded.result.records, [&](const Record& record) {
    return !filter.keeps(record.item) || (config.shard && !config.shard->shard.has(record.item));
  });
  require_common_case(loaded, config);
  nlohmann::ordered_json meta = meta_json({});
  add_input_files(meta, config.cases);
  require_comparable(
      loaded.source, conditions(loaded.result),
      conditions(meta, nlohmann::ordered_json::array({device}), config.measure.cache),
      loaded.options.allow_different);
  return loaded;
}

void BaselineFlags::require_writable(const std::filesystem::path& folder,
                                     const SweepConfig& config) const {
  if (!save) return;
  const std::filesystem::path path = named_baseline(folder, *save, config.shard);
  make_folder(path.parent_path());
  flashbench::require_writable(path);
}

std::function<std::vector<std::string>(const SweepResult&)> BaselineFlags::once_more(
    const std::optional<LoadedBaseline>& loaded) const {
  if (!loaded || !until_conclusive) return {};
  const auto clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  return UntilConclusive(loaded->result, loaded->options, *until_conclusive, clock);
}

int BaselineFlags::finish(const std::optional<LoadedBaseline>& loaded,
                          const std::filesystem::path& folder, const SweepConfig& config,
                          const SweepOutcome& outcome) const {
  int code = exit_codes::kOk;
  if (loaded && !config.cases.empty()) {  // a shard may have none
    const Comparison comparison =
        compare(loaded->result, outcome.result, loaded->options, loaded->source, "this sweep");
    fmt::print("\n{}", to_table(comparison));
    const int undecided = comparison.count(Change::inconclusive);
    if (until_conclusive && undecided > 0) {
      fmt::print("still undecided after {:g} s more: {} of {} rows\n", *until_conclusive, undecided,
                 comparison.rows.size());
    }
    code = how.exit_code(comparison);
  }
  if (!save) return code;
  if (code == exit_codes::kOk && outcome.ended_well) {
    save_baseline(named_baseline(folder, *save, config.shard), outcome.result);
  } else {
    print_error(fmt::format("flashbench: not saved as baseline {}: {}\n", *save,
                            outcome.ended_well ? "it is a regression" : "not all rows are ok"));
  }
  return code;
}

}  // namespace flashbench
