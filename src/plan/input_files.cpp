#include "plan/input_files.h"

#include "files/checksum.h"

namespace flashbench {

nlohmann::ordered_json input_files(const std::vector<Case>& cases) {
  auto files = nlohmann::ordered_json::object();
  for (const Case& item : cases) {
    if (item.inputs.distribution != Distribution::files) continue;
    for (const std::string& path : {item.inputs.q, item.inputs.k, item.inputs.v, item.inputs.d_o}) {
      if (!path.empty() && !files.contains(path)) files[path] = file_checksum_text(path);
    }
  }
  return files;
}

}  // namespace flashbench
