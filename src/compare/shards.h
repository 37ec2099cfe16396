// Joins the results of the shards of a sweep (plan/shard.h) into the result of the sweep.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <vector>

#include "report/record.h"

namespace flashbench {

bool is_shard(const SweepResult&);

// What the results of a sweep have in common on whatever machine it runs: config, build and kind of
// device; of shards also their number, cases, options and providers.
nlohmann::ordered_json common_part(const SweepResult&);

// The rows of all shards, in the order of the sweep. Each row and ceiling names its file (source).
// Data about the whole result is the first shard's, except that meta/shards has the meta of each
// and `devices` each device that differs. Throws BaselineError, which names the files and what
// differs, if the shards are not of one sweep; BadInput if one is missing, there twice, unfinished,
// or has rows of another.
SweepResult joined(std::vector<NamedResult> shards);

// The results, with one that is joined of all shards among them in the place of the first. A shard
// without others stays as it is.
std::vector<NamedResult> with_shards_joined(std::vector<NamedResult>);

// The results of shards in a folder, by name. Throws FileError if there are none.
std::vector<std::filesystem::path> shard_files(const std::filesystem::path& folder);

// Reads a result file, or joins the shards in a folder. Throws FileError, and as above.
SweepResult read_result_or_shards(const std::filesystem::path&);

}  // namespace flashbench
