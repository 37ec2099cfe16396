// Baselines on disk: result files, some of them stored under a name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "plan/shard.h"
#include "report/record.h"

namespace flashbench {

// Reads the result to compare with, a file or a folder of shards. Throws BaselineError, which names
// the file and the problem, if it is missing, damaged, or of another schema.
SweepResult read_baseline(const std::filesystem::path&);

// The path of the baseline called `name` of the sweeps in `folder`: FOLDER/baselines/NAME.json.
// Each shard has its own. A name consists of letters, digits, '.', '_' and '-', begins with a
// letter or a digit, and does not end in ".json". Throws BadInput for anything else.
std::filesystem::path named_baseline(const std::filesystem::path& folder, const std::string& name,
                                     const std::optional<ShardPlan>& = std::nullopt);

// Whether --baseline got a name: a file has a slash or ends in ".json" or ".json.gz".
bool is_baseline_name(const std::string& file_or_name);

// The path that --baseline stands for.
std::filesystem::path baseline_path(const std::filesystem::path& folder,
                                    const std::string& file_or_name,
                                    const std::optional<ShardPlan>& = std::nullopt);

}  // namespace flashbench
