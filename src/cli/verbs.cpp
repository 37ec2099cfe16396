#include "cli/verbs.h"

namespace flashbench {

std::vector<const CLI::App*> shown_verbs(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* verb) { return !verb->get_group().empty(); });
}

}  // namespace flashbench
