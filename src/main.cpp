#include "cli/command_line.h"

int main(int argc, char** argv) {
  return flashbench::run_command_line(argc, argv);
}
