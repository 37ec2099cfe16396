#include "cli/outputs.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "attention/error.h"
#include "files/atomic_file.h"

namespace flashbench {

namespace {

namespace fs = std::filesystem;

// What the path leads to, by a name that all paths to it share; empty for what any number of
// outputs may go to, such as /dev/null.
std::string place_of(const std::string& path) {
  if (path == "-") return "stdout";
  std::error_code error;
  const fs::path place = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) return path;
  return fs::exists(place, error) && !fs::is_regular_file(place, error) ? "" : place.string();
}

}  // namespace

void require_not_read(const Output& output, const std::vector<std::string>& inputs) {
  const std::string place = place_of(output.path);
  for (const std::string& input : inputs) {
    if (place.empty() || input == "-" || place_of(input) != place) continue;
    throw BadInput(fmt::format("{} {}: the command reads this file; expected another one to write",
                               output.option, output.path));
  }
}

void check_outputs(const std::vector<Output>& outputs, const std::vector<std::string>& inputs) {
  std::map<std::string, std::string> taken;  // by place: the option
  for (const Output& output : outputs) {
    const auto& [option, path] = output;
    if (path.empty()) continue;
    if (path != "-") require_writable(path);
    require_not_read(output, inputs);
    const std::string place = place_of(path);
    if (place.empty()) continue;
    const auto [other, is_first] = taken.try_emplace(place, option);
    if (is_first) continue;
    throw BadInput(fmt::format("{} {}: {} writes there, too; expected a place of its own", option,
                               path, other->second));
  }
}

void write_text(const std::string& path, const std::string& text) {
  if (path == "-") {
    fmt::print("{}", text);
  } else if (!path.empty()) {
    write_file_atomically(path, text);
  }
}

}  // namespace flashbench
