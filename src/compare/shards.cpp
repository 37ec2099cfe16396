#include "compare/shards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "attention/error.h"
#include "compare/comparable.h"
#include "plan/json_differences.h"
#include "plan/json_text.h"
#include "report/environment.h"
#include "report/json.h"
#include "report/shard_part.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBuildKeys[] = {"version",    "git_commit", "git_dirty", "compiler",
                                      "build_type", "sanitizers", "flop_rule", "byte_rule"};

// A shard, and which shard it is.
struct Part {
  const NamedResult& named;
  ShardPart shard;

  const std::string& file() const { return named.source; }
};

std::vector<Part> parts_of(const std::vector<NamedResult>& shards) {
  std::vector<Part> parts;
  for (const NamedResult& named : shards) parts.push_back({named, *shard_part(named.result.meta)});
  return parts;
}

void require_one_sweep(const std::vector<Part>& parts) {
  const Part& first = parts.front();
  const Json there = common_part(first.named.result);
  for (const Part& other : parts) {
    const auto found = json_differences(there, common_part(other.named.result));
    if (found.empty()) continue;
    throw BaselineError(fmt::format("{}: not a shard of the sweep of {}:{}", other.file(),
                                    first.file(), listed(found, "here")));
  }
}

// Each shard must be there once. Sorts them by number.
void require_each_once(std::vector<Part*>& parts) {
  std::ranges::stable_sort(parts, {}, [](const Part* part) { return part->shard.shard.number; });
  const int count = parts.front()->shard.shard.count;
  std::vector<int> missing;
  size_t next = 0;
  for (int number = 1; number <= count; ++number) {
    if (next == parts.size() || parts[next]->shard.shard.number != number) {
      missing.push_back(number);
      continue;
    }
    const Part* part = parts[next++];
    if (next < parts.size() && parts[next]->shard.shard.number == number) {
      throw BadInput(fmt::format("{} and {} are both shard {}", part->file(), parts[next]->file(),
                                 part->shard.shard.text()));
    }
  }
  if (missing.empty()) return;
  throw BadInput(
      fmt::format("{}: expected all {} shards of the sweep; {} missing: {}", parts.front()->file(),
                  count, missing.size() == 1 ? "one is" : "some are", fmt::join(missing, ", ")));
}

// The keys of a shard's cases, in order. Throws BadInput if these are not all cases of the shard.
std::vector<std::string> keys_of(const Part& part) {
  std::vector<std::string> keys;
  std::set<std::string> known;
  for (const Record& record : part.named.result.records) {
    std::string key = record.item.key();
    if (!known.insert(key).second) continue;
    if (!part.shard.shard.has(record.item)) {
      throw BadInput(fmt::format("{}: shard {} has a case of another shard: {}", part.file(),
                                 part.shard.shard.text(), key));
    }
    keys.push_back(std::move(key));
  }
  if (keys.size() == part.shard.positions.size()) return keys;
  throw BadInput(fmt::format("{}: shard {} has {} of its {} cases; sweep --resume completes it",
                             part.file(), part.shard.shard.text(), keys.size(),
                             part.shard.positions.size()));
}

// Each case must have the row of each provider of the sweep, and no other. Reading a result has
// refused rows that are there twice.
void require_rows_of_providers(const Part& part, const std::vector<std::string>& keys) {
  const std::vector<std::string> providers = part.shard.providers();
  std::set<std::pair<std::string, std::string>> rows;
  for (const Record& record : part.named.result.records) {
    if (std::ranges::find(providers, record.provider) == providers.end()) {
      throw BadInput(fmt::format("{}: expected rows of {}, found one of {}", part.file(),
                                 fmt::join(providers, ", "), record.provider));
    }
    rows.emplace(record.item.key(), record.provider);
  }
  for (const std::string& key : keys) {
    for (const std::string& provider : providers) {
      if (rows.contains({key, provider})) continue;
      throw BadInput(fmt::format("{}: shard {} lacks the row of {} in {}", part.file(),
                                 part.shard.shard.text(), provider, key));
    }
  }
}

// A row, and where its case stands in the sweep.
struct Placed {
  int position = 0;
  Record record;
};

void take_rows(const Part& part, std::vector<std::string>& keys, std::vector<Placed>& rows) {
  const std::vector<std::string> own = keys_of(part);
  require_rows_of_providers(part, own);
  std::map<std::string, int> positions;
  for (size_t i = 0; i < own.size(); ++i) {
    positions[own[i]] = part.shard.positions[i];
    keys[static_cast<size_t>(part.shard.positions[i])] = own[i];
  }
  for (const Record& record : part.named.result.records) {
    rows.push_back({positions.at(record.item.key()), record});
    rows.back().record.source = part.file();
  }
}

std::vector<Record> all_rows(const std::vector<Part*>& parts) {
  std::vector<std::string> keys(parts.front()->shard.cases());
  std::vector<Placed> rows;
  for (const Part* part : parts) take_rows(*part, keys, rows);
  if (cases_hash(keys) != parts.front()->shard.cases_hash()) {
    throw BadInput(fmt::format("{}: its shards together do not have the {} cases of the sweep",
                               parts.front()->file(), keys.size()));
  }
  std::ranges::stable_sort(rows, {}, &Placed::position);
  std::vector<Record> records;
  for (Placed& row : rows) records.push_back(std::move(row.record));
  return records;
}

// Adds the files of inputs of a shard's cases (plan/input_files.h) to those of the shards before.
void take_inputs(const Part& part, Json& meta) {
  if (!part.named.result.meta.contains("inputs")) return;
  for (const auto& [path, held] : part.named.result.meta.at("inputs").items()) {
    Json& known = meta["inputs"][path];
    if (!known.is_null() && known != held) {
      throw BaselineError(
          fmt::format("{}: {} held something else than for the shards before", part.file(), path));
    }
    known = held;
  }
}

// Data about the whole result.
SweepResult without_rows(const std::vector<Part*>& parts) {
  SweepResult all;
  const SweepResult& first = parts.front()->named.result;
  all.meta = first.meta;
  all.meta.erase("shard");
  all.config = first.config;
  all.devices = Json::array();
  for (const Part* part : parts) {
    const SweepResult& shard = part->named.result;
    take_inputs(*part, all.meta);
    Json meta = shard.meta;
    meta.erase("shard");
    all.meta["shards"].push_back({{"file", part->file()}, {"meta", std::move(meta)}});
    for (const Json& device : shard.devices) {
      if (std::ranges::find(all.devices, device) == all.devices.end()) {
        all.devices.push_back(device);
      }
    }
    for (Ceiling ceiling : shard.ceilings) {
      ceiling.source = part->file();
      all.ceilings.push_back(std::move(ceiling));
    }
  }
  return all;
}

}  // namespace

bool is_shard(const SweepResult& result) {
  return result.meta.contains("shard");
}

Json common_part(const SweepResult& result) {
  Json build = Json::object();
  for (const char* key : kBuildKeys) {
    if (result.meta.contains(key)) build[key] = result.meta.at(key);
  }
  Json common{{"config", result.config},
              {"build", std::move(build)},
              {"device", kind_of_device(result.devices.at(0))}};
  if (const auto part = shard_part(result.meta)) {
    common["shards"] = part->shard.count;
    common["sweep"] = part->sweep;
  }
  return common;
}

SweepResult joined(std::vector<NamedResult> shards) {
  std::vector<Part> parts = parts_of(shards);
  require_one_sweep(parts);
  std::vector<Part*> in_order;
  for (Part& part : parts) in_order.push_back(&part);
  require_each_once(in_order);
  SweepResult all = without_rows(in_order);
  all.records = all_rows(in_order);
  return all;
}

std::vector<NamedResult> with_shards_joined(std::vector<NamedResult> results) {
  const auto is_part = [](const NamedResult& named) { return is_shard(named.result); };
  const auto parts = std::ranges::count_if(results, is_part);
  if (parts == 0 || results.size() == 1) return results;
  std::vector<NamedResult> shards, all;
  size_t place = 0;
  for (NamedResult& named : results) {
    const bool part = is_part(named);
    if (part && shards.empty()) place = all.size();
    (part ? shards : all).push_back(std::move(named));
  }
  const std::string source =
      fmt::format("{} and {} more", shards.front().source, shards.size() - 1);
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(place), {source, joined(std::move(shards))});
  return all;
}

std::vector<std::filesystem::path> shard_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (is_shard_file(entry.path().filename())) files.push_back(entry.path());
  }
  if (files.empty()) {
    throw FileError(
        fmt::format("{}: expected the results of shards (NAME.shard-2-of-8.json), found none",
                    folder.string()));
  }
  std::ranges::sort(files);
  return files;
}

SweepResult read_result_or_shards(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return read_result(path);
  std::vector<NamedResult> shards;
  for (const auto& file : shard_files(path)) {
    shards.push_back({printable(file.string()), read_result(file)});
    if (!is_shard(shards.back().result)) {
      throw BadInput(
          fmt::format("{}: expected the result of a shard, found a whole one", file.string()));
    }
  }
  return joined(std::move(shards));
}

}  // namespace flashbench
