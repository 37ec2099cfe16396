#include <fmt/format.h>

#include "attention/exit_codes.h"
#include "build_info.h"
#include "cli/commands.h"
#include "cli/manual.h"

namespace flashbench {

void add_manual(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("manual", "Print the manual page, flashbench(1)");
  command.group("");  // hidden: for the installation
  command.callback([&app, &invocation] {
    fmt::print("{}", manual_page(app, build_info().version));
    invocation.exit_code = exit_codes::kOk;
  });
}

}  // namespace flashbench
