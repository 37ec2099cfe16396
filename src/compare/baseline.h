// Baselines on disk: result files, some of them kept under a name.
#pragma once

#include <filesystem>
#include <string>

#include "report/record.h"

namespace flashbench {

// Reads a result that is to be compared with. Throws BaselineError, naming the file and what is
// wrong with it, where it is missing, damaged, or of another schema.
SweepResult read_baseline(const std::filesystem::path&);

// Where the baseline called `name` of the sweeps in `folder` is: FOLDER/baselines/NAME.json. Throws
// BadInput for what is no name: letters, digits, '.', '_' and '-', beginning with a letter or a
// digit and not ending in ".json".
std::filesystem::path named_baseline(const std::filesystem::path& folder, const std::string& name);

// What --baseline means: a file if it has a slash or ends in ".json", else a name.
std::filesystem::path baseline_path(const std::filesystem::path& folder,
                                    const std::string& file_or_name);

}  // namespace flashbench
