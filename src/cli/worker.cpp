#include "worker/worker.h"

#include <limits>
#include <memory>

#include "cli/commands.h"
#include "cli/numbers.h"

namespace flashbench {

void add_worker(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("worker", "Runs the cases that a sweep sends");
  command.group("");  // hidden
  auto parent = std::make_shared<int>(0);
  command.add_option("parent", *parent, "Process whose end ends the worker")
      ->required()
      ->transform(from_to(1, std::numeric_limits<int>::max()));
  command.callback([parent, &invocation] { invocation.exit_code = serve(*parent); });
}

}  // namespace flashbench
