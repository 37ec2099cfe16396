#include "cli/command_line.h"

#include "build_info.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/standard_streams.h"

namespace flashbench {

namespace {

// Refuses values that are present but empty: they are a mistake, e.g. an unset variable of a
// script.
void refuse_empty_values(CLI::App& app) {
  const auto check = [](const std::string& text) {
    return text.empty() ? std::string("expected a value, got \"\"") : std::string();
  };
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 0) option->check(check);
  }
  for (CLI::App* verb : app.get_subcommands({})) refuse_empty_values(*verb);
}

}  // namespace

void declare_command_line(CLI::App& app, Invocation& invocation) {
  app.description("Benchmarks and verifies attention implementations: a verified number or none.");
  app.name("flashbench");
  app.set_version_flag("--version", build_info().text());
  app.require_subcommand(1);
  app.footer(exit_code_help());
  add_sweep(app, invocation);
  add_run(app, invocation);
  add_verify(app, invocation);
  add_compare(app, invocation);
  add_report(app, invocation);
  add_list(app, invocation);
  add_info(app, invocation);
  add_tune(app, invocation);
  add_completion(app, invocation);
  add_manual(app, invocation);
  add_worker(app, invocation);
  refuse_empty_values(app);
}

int run_command_line(int argc, char** argv) {
  prepare_standard_streams();
  Invocation invocation{{argv, argv + argc}};
  if (!invocation.argv.empty()) {
    invocation.argv[0] = "flashbench";  // not its path: results are made to be shared
  }
  CLI::App app;
  return flush_standard_output(run_and_explain(
      [&] {
        declare_command_line(app, invocation);
        app.parse(argc, argv);
        return invocation.exit_code;
      },
      app));
}

}  // namespace flashbench
