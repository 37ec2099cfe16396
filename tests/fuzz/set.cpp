#include <algorithm>

#include "fuzz/targets.h"
#include "plan/config.h"
#include "plan/override.h"

namespace flashbench::fuzz {

// One --set argument per line, all applied to one document. The target config, which is much
// slower, checks what a config may then contain.
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
