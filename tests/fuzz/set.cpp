#include <algorithm>

#include "fuzz/targets.h"
#include "plan/config.h"
#include "plan/override.h"

namespace flashbench::fuzz {

// One --set argument a line, all put into one document. What a config may then hold is for the
// target config to find out, which is slower by far.
void set(std::string_view bytes) {
  auto document = nlohmann::ordered_json::parse(
      R"({"name": "fuzz", "measure": {"min_samples": 5}, "cases": [{"seq": [16, 32]}]})");
  try {
    while (!bytes.empty()) {
      const size_t end = std::min(bytes.find('\n'), bytes.size());
      apply_override(document, parse_override(bytes.substr(0, end)));
      bytes.remove_prefix(std::min(end + 1, bytes.size()));
    }
  } catch (const ConfigError&) {
  }
}

}  // namespace flashbench::fuzz
