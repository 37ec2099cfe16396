#include "plan/input_files.h"

#include <utility>

#include "files/checksum.h"

namespace flashbench {

namespace {

std::vector<std::string> tensor_files(const Case& item) {
  std::vector<std::string> files;
  if (item.inputs.distribution != Distribution::files) return files;
  for (const std::string& path : {item.inputs.q, item.inputs.k, item.inputs.v, item.inputs.d_o}) {
    if (!path.empty()) files.push_back(path);
  }
  return files;
}

}  // namespace

void add_input_files(nlohmann::ordered_json& meta, const std::vector<Case>& cases) {
  auto files = nlohmann::ordered_json::object();
  for (const Case& item : cases) {
    for (const std::string& path : tensor_files(item)) {
      if (!files.contains(path)) files[path] = file_checksum_text(path);
    }
  }
  if (!files.empty()) meta["inputs"] = std::move(files);
}

std::vector<std::string> files_named_in(const nlohmann::ordered_json& json) {
  std::vector<std::string> files;
  if (!json.is_structured()) return files;
  if (json.is_object() && json.contains("file") && json.at("file").is_string()) {
    files.push_back(json.at("file"));
  }
  for (const auto& part : json) {
    for (std::string& file : files_named_in(part)) files.push_back(std::move(file));
  }
  return files;
}

std::vector<std::string> files_read_by(const SweepConfig& config) {
  std::vector<std::string> files = config.files;
  for (const Case& item : config.cases) {
    for (std::string& file : tensor_files(item)) files.push_back(std::move(file));
  }
  for (const PluginFile& plugin : config.plugins) files.push_back(plugin.path);
  if (!config.program.empty()) files.push_back(config.program);
  return files;
}

}  // namespace flashbench
