#include "plan/input_files.h"

#include <string>
#include <utility>

#include "files/checksum.h"

namespace flashbench {

void add_input_files(nlohmann::ordered_json& meta, const std::vector<Case>& cases) {
  auto files = nlohmann::ordered_json::object();
  for (const Case& item : cases) {
    if (item.inputs.distribution != Distribution::files) continue;
    for (const std::string& path : {item.inputs.q, item.inputs.k, item.inputs.v, item.inputs.d_o}) {
      if (!path.empty() && !files.contains(path)) files[path] = file_checksum_text(path);
    }
  }
  if (!files.empty()) meta["inputs"] = std::move(files);
}

}  // namespace flashbench
