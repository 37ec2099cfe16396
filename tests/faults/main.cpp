#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "cli/command_line.h"
#include "faulty_provider.h"

namespace {

// What an earlier crash has done to the device (faulty_provider.h).
void abort_where_the_device_is_lost(int argc, char** argv) {
  const char* marker = std::getenv("FLASHBENCH_LOST_DEVICE");
  const bool worker = argc > 1 && std::string_view(argv[1]) == "worker";
  if (worker && marker != nullptr && std::filesystem::exists(marker)) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  abort_where_the_device_is_lost(argc, argv);
  flashbench::add_provider(flashbench::make_faulty_provider());
  return flashbench::run_command_line(argc, argv);
}
