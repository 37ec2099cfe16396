#include "cli/command_line.h"
#include "faulty_provider.h"

int main(int argc, char** argv) {
  flashbench::add_provider(flashbench::make_faulty_provider());
  return flashbench::run_command_line(argc, argv);
}
