#include <fmt/format.h>

#include <memory>

#include "attention/exit_codes.h"
#include "cli/commands.h"
#include "cli/completion.h"

namespace flashbench {

void add_completion(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("completion", "Print the completion script of a shell");
  auto shell = std::make_shared<std::string>();
  command.add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command.callback([shell, &app, &invocation] {
    fmt::print("{}", completion_script(app, *shell));
    invocation.exit_code = exit_codes::kOk;
  });
}

}  // namespace flashbench
