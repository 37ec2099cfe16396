#include "compare/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "attention/error.h"
#include "compare/comparable.h"
#include "compare/shards.h"
#include "report/json.h"

namespace flashbench {

namespace {

constexpr std::string_view kExtension = ".json", kCompressed = ".json.gz";
constexpr size_t kLongestName = 64;

bool is_file_name(const std::string& name) {
  return name.ends_with(kExtension) || name.ends_with(kCompressed);
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

}  // namespace

SweepResult read_baseline(const std::filesystem::path& path) {
  try {
    return read_result_or_shards(path);
  } catch (const FileError& error) {
    throw BaselineError(fmt::format("baseline {}", error.what()));
  }
}

std::filesystem::path named_baseline(const std::filesystem::path& folder, const std::string& name,
                                     const std::optional<ShardPlan>& shard) {
  const bool right = !name.empty() && name.size() <= kLongestName &&
                     std::isalnum(static_cast<unsigned char>(name[0])) &&
                     std::all_of(name.begin(), name.end(), is_name_character) &&
                     !is_file_name(name);
  if (!right) {
    throw BadInput(fmt::format(
        "a baseline's name is 1 to {} letters, digits, '.', '_' and '-', beginning "
        "with a letter or a digit and not ending in \".json\" or \".json.gz\", got \"{}\"",
        kLongestName, name));
  }
  return folder / "baselines" / (named_for_shard(name, shard) + std::string(kExtension));
}

bool is_baseline_name(const std::string& file_or_name) {
  return file_or_name.find('/') == std::string::npos && !is_file_name(file_or_name);
}

std::filesystem::path baseline_path(const std::filesystem::path& folder,
                                    const std::string& file_or_name,
                                    const std::optional<ShardPlan>& shard) {
  return is_baseline_name(file_or_name) ? named_baseline(folder, file_or_name, shard)
                                        : std::filesystem::path(file_or_name);
}

}  // namespace flashbench
