#include "cli/command_line.h"

#include "build_info.h"
#include "cli/commands.h"
#include "cli/errors.h"

namespace flashbench {

int run_command_line(int argc, char** argv) {
  CLI::App app("Benchmarks and verifies attention implementations: a verified number or no number.",
               "flashbench");
  app.set_version_flag("--version", build_info().text());
  app.require_subcommand(1);
  app.footer(exit_code_help());

  Invocation invocation{{argv, argv + argc}};
  invocation.argv[0] = app.get_name();  // not where it lies: results are made to be shared
  add_sweep(app, invocation);
  add_run(app, invocation);
  add_verify(app, invocation);
  add_compare(app, invocation);
  add_report(app, invocation);
  add_list(app, invocation);
  add_info(app, invocation);
  add_tune(app, invocation);
  add_completion(app, invocation);
  add_worker(app, invocation);
  return run_and_explain(
      [&] {
        app.parse(argc, argv);
        return invocation.exit_code;
      },
      app);
}

}  // namespace flashbench
